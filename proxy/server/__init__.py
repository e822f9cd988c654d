"""The listening side: addresses, routes, keys, reload.

Law: it knows no dialect and nothing of compaction.
"""
