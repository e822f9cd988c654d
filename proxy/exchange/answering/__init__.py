"""Reads from an upstream's answer what the request has cost and what trimtab can learn.

Law: it only observes. A fault in this room never changes an answer.
"""
