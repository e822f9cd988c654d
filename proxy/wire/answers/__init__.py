"""What the dialects share to read responses: event streams, usage, and the text that a model wrote.

Law: no I/O. Nothing is raised, whatever the input is, unless a docstring names the error.
"""
