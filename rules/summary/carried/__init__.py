"""The task list and the instruction files that code carries over a cut.

Law: a function of the removed messages, the tail (the messages after the cut when it is applied) and a budget; no model
is asked. Carried text is never reworded. It comes from a transcript, so it is quoted as data: markers in it are broken,
its size is bounded, and it gains no authority.
"""
