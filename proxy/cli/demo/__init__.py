"""`trimtab demo`: a session of our own making, replayed through a real proxy to a simulated upstream.

Law: the proxy and its figures are real; only the session and the upstream are made up.
"""
