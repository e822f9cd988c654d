"""Removes what carries no meaning from tool results.

Law: never longer than the input; a second pass changes nothing.
"""
