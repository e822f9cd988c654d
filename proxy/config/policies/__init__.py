"""The keys of a policy: how the requests of a model are compacted.

Law: every key has a default. A key that an entry of `models` does not set has the value of `defaults`.
"""
