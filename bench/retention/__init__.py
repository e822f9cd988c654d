"""Tool results: which facts survive a budget, what tidying saves, and how long both take.

Law: a contestant gets the text, its call and the budget, never the facts.
"""
