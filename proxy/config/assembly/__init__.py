"""How plain data becomes one validated Config: the file's data, what lies over it, and the problems of all that.

Law: no module here reads the environment or a file; load.py hands both in. A problem never quotes a secret.
"""
