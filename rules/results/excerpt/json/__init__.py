"""What a long JSON document keeps.

Law: what comes out is JSON, if what came in was.
"""
