"""The commands for the first minutes.

Law: they write no file that exists, unless they are told to.
"""
