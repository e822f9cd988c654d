"""Several processes on one port, and the supervisor that starts them.

Law: nothing here knows what a worker does. The supervisor has no event loop and no threads, so that it may fork.
"""
