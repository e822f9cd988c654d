"""How much each line of a text matters, by the kind of the text.

Law: lines in, numbers out; a score knows no budget.
"""
