"""The shell around the rules: configuration, HTTP, storage, metrics.

A request goes through server/router.py from top to bottom; everything else here serves it.
"""
