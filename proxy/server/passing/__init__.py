"""Requests that no codec claims.

Law: the body goes out byte for byte. If it names a model, the policy of that model decides the upstream.
"""
