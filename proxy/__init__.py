"""The shell around the rules: configuration, HTTP, storage, metrics.

Law: imports run downward, from cli to config. A request goes through server/router.py; everything else serves it.
"""
