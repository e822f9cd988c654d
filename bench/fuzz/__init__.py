"""Fuzzing: random inputs for everything that reads data from the network.

Law: the targets and their checks are those of `tests/fuzzing`; only the long run is here.
"""
