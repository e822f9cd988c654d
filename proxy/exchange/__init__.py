"""One request, from its arrival to its log line.

Law: nothing in this room outlives a request.
"""
