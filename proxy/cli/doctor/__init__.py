"""`trimtab doctor`: checks whether the proxy will work here.

Law: each problem that a check finds comes with advice.
"""
