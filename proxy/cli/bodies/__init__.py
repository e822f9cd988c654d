"""The commands for request bodies: compact them, count their tokens.

Law: no network.
"""
