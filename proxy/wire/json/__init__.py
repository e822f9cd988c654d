"""JSON as bytes: where values stand, and what decoders refuse.

Law: total on hostile bytes, and linear in their length.
"""
