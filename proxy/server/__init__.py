"""The server: listening addresses, routes, keys, reload.

Law: it does not know any dialect or anything about compaction.
"""
