"""Where summaries are kept: in this process, in a file, or on a server.

Law: a store gets encrypted bytes and ids, never a text or a credential. The first writer wins.
"""
