"""The keys of a policy: what a model's requests are compacted by.

Law: every key has a default. What an entry of `models` does not set is the default's.
"""
