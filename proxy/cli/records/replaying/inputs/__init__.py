"""What a replay reads beside recordings: logs and request bodies.

Law: no I/O, and nothing is planned here.
"""
