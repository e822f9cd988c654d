"""The dialect of chat completions.

Law: no other room names a field of a chat completion.
"""
