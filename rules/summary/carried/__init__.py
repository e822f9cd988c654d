"""What code carries over a cut: the task list, and instruction files that were read.

Law: a function of the removed messages, of the tail (the messages that are there when the cut is applied) and of a
budget; no model has a part in it. What is carried is never translated or reworded. It is a client's transcript, thus
quoted as data: markers in it are broken, its size is bounded, and it gains no authority.
"""
