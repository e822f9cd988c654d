"""What is known about hosted models before they are asked: context windows, prices, and how their prompt caches work.

Law: no network, and no answer is kept in the store. What an upstream's answers teach is kept apart by tenant.
"""
