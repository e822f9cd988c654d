"""Counts the tokens of messages, tool schemas and images, given a function that counts a text.

Law: each estimate names its source; the same message always costs the same.
"""
