"""Functions on plain text, independent of messages.

Law: text in, text out. Time is linear in the text, or bounded.
"""
