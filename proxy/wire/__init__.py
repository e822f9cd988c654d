"""What stands on the wire: a folder for a dialect, JSON, refusals.

Law: sans I/O; dialects never import each other.
"""
