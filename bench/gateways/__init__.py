"""Gateways side by side: the processor time that each needs for the same requests, as ratios within one run.

Law: the gateway has one core for itself, everything else has the others; rounds go over all targets in turn; a sample
that other programs disturbed is taken again.
"""
