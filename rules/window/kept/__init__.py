"""What stays verbatim of the part that a cut removes.

Law: a function of the messages added so far. Each question costs at most O(log n) for each message that is kept.
"""
