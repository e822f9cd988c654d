"""What the proxy did lately, for people to look at.

Law: one bounded table of events, which workers and replicas share in the store. Text of messages is kept only if the
configuration says so, and never in the store.
"""
