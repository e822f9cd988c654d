"""Reads facts from calls and results: arguments, command lines, exit status.

Law: in doubt, nothing is concluded.
"""
