"""The commands.

Law: only this package prints.
"""
