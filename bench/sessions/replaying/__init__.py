"""Sessions sent through proxies, as processes or in this process, to an upstream that records what it gets.

Law: a replay enters what is forwarded into a ledger. It computes no cost.
"""
