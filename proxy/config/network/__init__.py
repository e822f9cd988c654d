"""How an upstream is reached: through which proxy, and which certificates are trusted.

Law: an error is reported when the configuration is read, not at the first request.
"""
