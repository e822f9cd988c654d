"""Recall: the search in what was cut out of a conversation.

Law: what is found is a function of the transcript. Nothing is stored, and nothing outlives the exchange that asked.
"""
