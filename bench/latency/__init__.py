"""The time that the proxy adds: at its start, to a long request, to a stream, to its own event loop.

Law: whatever is compared takes turns in one run.
"""
