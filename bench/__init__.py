"""Benchmarks: each folder measures one thing; README.md has the results and the methods.

Law: the rooms that measure never import each other, except that `retention` replays and prices by `sessions`. They are
built on `harness`, `peers`, `material` and `figures.py`, which do not import each other either. The program never
imports the bench.
"""
