"""The commands that run the proxy: as a process of its own, or around another command; and who may use it.

Law: processes, signals, and what a person at the terminal reads. proxy/server/ does the serving.
"""
