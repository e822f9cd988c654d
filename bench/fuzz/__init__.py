"""Fuzzing: random inputs for everything that reads what comes over the wire.

Law: the targets and what they check are those of `tests/fuzzing`; only the long run is here.
"""
