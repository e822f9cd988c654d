"""Compaction as pure functions over a conversation.

Law: nothing here does I/O, reads a clock, draws a random number or imports from `proxy`. What a rule needs comes in
as an argument; what it decided comes out as a `Decision`. import-linter holds it.
"""
