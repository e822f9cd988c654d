"""The dialect of Anthropic's Messages API.

Law: no other room names a field of it.
"""
