"""Reads and writes what is on the wire: one folder per dialect, JSON as bytes, refusals for length.

Law: no I/O. Dialects never import each other.
"""
