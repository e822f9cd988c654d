"""Text tools that know no message.

Law: text in, text out, in linear time or bounded.
"""
