"""How exact token counts are, and how fast they are made.

Law: processor time; whatever is compared takes turns in one run.
"""
