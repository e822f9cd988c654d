"""The commands.

Law: this room prints; nothing below it does.
"""
