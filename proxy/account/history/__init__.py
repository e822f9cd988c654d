"""What the proxy did lately, for people to look at.

Law: values, in memory, of bounded size. Text of messages is kept only if the configuration says so.
"""
