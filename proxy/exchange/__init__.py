"""One request, from its arrival to its log line.

Law: nothing in this package outlives a request but what is written of it (record.py).
"""
