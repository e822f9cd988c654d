"""Decides what is sent: the upstream and settings of a request, and its body, for a first and a second attempt.

Law: an attempt is a value. A fault in this room sends the client's own bytes.
"""
