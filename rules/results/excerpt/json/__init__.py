"""Excerpts of long JSON documents.

Law: the excerpt of a JSON document is JSON.
"""
