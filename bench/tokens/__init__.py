"""How exact token counts are, and how fast they are.

Law: processor time; things that are compared take turns in one run.
"""
