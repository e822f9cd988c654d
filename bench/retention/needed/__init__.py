"""What an agent needs next, and whether it is still there behind a cut: measured without a model.

Law: a recording is replayed as it is, and answered by nobody; what a session would have done otherwise is not known.
Trimtab runs in this process, by the code that the proxy runs (shell.py says what stands in for its waiting).
"""
