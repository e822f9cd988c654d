"""Summaries: found in the store, shared with a call under way, or asked of a model; encrypted for the client.

Law: a summary can be found and read only with the credential that paid for it.
"""
