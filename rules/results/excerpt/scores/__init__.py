"""Scores of lines: how much each line of a text matters, by the kind of the text.

Law: lines in, numbers out; a score does not depend on the budget. The scores are chosen;
`python -m bench.retention.run --only facts` measures what the excerpts keep.
"""
