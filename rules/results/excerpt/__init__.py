"""What a long tool result keeps: the lines that matter in a text of its kind.

Law: text in, text out; within the budget; a marker says what is missing.
"""
