"""How an upstream is reached: through which proxy, and whose certificates are trusted.

Law: what is wrong is told when the configuration is read, not when the first request comes.
"""
