"""`trimtab doctor`: whether the proxy will work here.

Law: every finding says what to do.
"""
