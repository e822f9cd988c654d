"""Many mixed clients for minutes, in front of an upstream that fails in every way.

Law: clients, upstream and the proxy's metrics must report the same.
"""
