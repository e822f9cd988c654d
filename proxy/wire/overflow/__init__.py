"""Recognises responses that refuse a prompt for its length, and reads their numbers.

Law: the wording of a server is a row with a sample in wordings.txt, never a branch in code.
"""
