"""Pins: after long tool output, one line repeats what the user wants and what the agent does next.

Law: a pin depends only on the messages up to the result that it is appended to, so it is replayed the same ever after.
"""
