"""The time that the proxy adds: to its start, to a long request, to a stream, and to its own event loop.

Law: things that are compared take turns in one run.
"""
