"""What the dialects share to read and write transcripts: bodies, their elements, and what was decoded before.

Law: no field name of a dialect. What is remembered only saves time and never changes a result.
"""
