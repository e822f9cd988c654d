"""Other people's packages, each in a virtual environment of its own.

Law: our environment imports nothing of theirs, and what runs in theirs imports nothing of ours (`engines` alone
measures through the proxy's adapters). `environments` is the bridge between the two, `install` makes the environments.
"""
