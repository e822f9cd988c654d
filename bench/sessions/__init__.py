"""Measures what a whole agent session costs at an upstream that caches prompts.

Law: every contestant's requests are priced by the same ledger.
"""
