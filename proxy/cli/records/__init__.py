"""The commands for recordings: look at a request, replay many.

Law: they read recordings and logs, and call no upstream.
"""
