"""`trimtab demo`: an invented session, replayed through a real proxy to a simulated upstream.

Law: the proxy and its figures are real. Only the session and the upstream are invented.
"""
