"""Gateways side by side: what each takes of one core for the same requests, as ratios within one run.

Law: the gateway has a core of its own, all else the others; rounds go over all targets by turns; a sample that other
programs disturbed is taken again.
"""
