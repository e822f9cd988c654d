"""The sections of the configuration that are no policy: upstreams, limits, prices.

Law: every key has a default and a description that an operator understands.
"""
