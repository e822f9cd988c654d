"""The index of exact names behind a summary: what code carries over a cut, so that no model has to copy it.

Law: a function of the removed messages, of the tail as it was when the cut was made, and of a budget.
"""
