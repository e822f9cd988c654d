"""Metrics and logs.

Law: no message text and no credential.
"""
