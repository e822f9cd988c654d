"""Summaries: found, joined, or asked of a model; sealed with the client's credential.

Law: no summary is found or read without the credential that paid for it.
"""
