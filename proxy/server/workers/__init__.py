"""Several processes on one port, and the one that starts them.

Law: nothing here knows what a worker does. The supervisor has neither an event loop nor threads, so that it may fork.
"""
