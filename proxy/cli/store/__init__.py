"""The commands about what the proxy keeps.

Law: they read and write the store, and call no running proxy.
"""
