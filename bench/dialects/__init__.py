"""Compares what trimtab decides about the same session in each dialect.

Law: only the form of the requests differs: all are counted by one counter, and priced by one ledger.
"""
