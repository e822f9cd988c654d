"""Tool results: which facts survive a budget, what tidying saves, and what both take.

Law: a contestant sees the text, its call and the budget, never the facts.
"""
