"""JSON as bytes: finds the positions of values, and repairs what decoders refuse.

Law: nothing fails on hostile bytes, and the time is linear in their length.
"""
