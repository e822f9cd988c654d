"""Tells what became of a request: to the dashboard's history, to recordings, and to traces.

Law: after the client has its answer. Nothing here changes what is sent.
"""
