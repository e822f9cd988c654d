"""Measures how exact and how fast token counts are.

Law: processor time; things that are compared take turns in one run.
"""
