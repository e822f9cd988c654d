"""Excerpts of long tool results: they keep the lines that matter in a text of their kind.

Law: text in, text out; within the budget; a marker says what is missing.
"""
