"""The result of a replay: as JSON, as tables, and as a picture.

Law: nothing is counted here.
"""
