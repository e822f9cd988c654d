"""Bytes in, bytes out: a request decoded, planned, applied, encoded.

Law: no I/O; safe to run in a thread.
"""
