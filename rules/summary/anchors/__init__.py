"""The index of exact names after a summary. Code carries these names over a cut, so that no model has to copy them.

Law: a function of the removed messages, the tail at the moment when the cut was made, and a budget.
"""
