"""The dialect of OpenAI's Responses API.

Law: no other room names a field of a response.
"""
