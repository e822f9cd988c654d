"""Other projects' packages, each in its own virtual environment.

Law: trimtab's environment imports nothing of theirs, and code that runs in theirs imports nothing of trimtab's (except
`engines`, which measures through the proxy's adapters). `environments` connects the two; `install` makes them.
"""
