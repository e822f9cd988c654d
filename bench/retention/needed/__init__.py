"""Measures whether what an agent needs next is still there after a cut, without a model.

Law: a recording is replayed unchanged; nobody answers from the shorter prompt, so what a session would have done
differently is unknown. trimtab runs in this process, by the code of the proxy (sessions/replaying/shell.py says what
replaces its waiting).
"""
