"""Bytes of a request <-> Conversation, one module per endpoint."""
