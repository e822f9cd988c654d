"""Where a transcript is cut: the strict left fold and its state.

Law: a longer transcript never changes an earlier decision.
"""
