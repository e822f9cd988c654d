"""Counting texts: exactly by a vocabulary, with tiktoken or an optional engine, or by a heuristic.

Law: an exact count is the same with every engine. The heuristic is named as such wherever it counts.
"""
