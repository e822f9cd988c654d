"""Metrics and logs.

Law: they contain no message text and no credential.
"""
