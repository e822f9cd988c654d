"""What became of requests, and everybody who keeps it: the log, the books, the dashboard's history, and recordings.

Law: after the client has its answer. It observes, and knows nothing of how a request is served.
"""
