"""The caches of upstreams, simulated: what a prompt reads, what it writes, and what was there once.

Law: pure; time is a number that the caller gives. A kind is a value; `open` makes an empty cache of it.
"""
