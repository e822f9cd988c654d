"""Benchmarks: each folder measures one thing, as the section of its name in README.md says.

Law: the rooms that measure never import each other. They stand on `harness`, `peers`, `material` and `figures.py`,
which do not import each other either. The program never imports the bench.
"""
