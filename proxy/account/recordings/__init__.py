"""Requests that are recorded on disk, for `trimtab inspect` and `trimtab replay`.

Law: only if the configuration says so, readable by the owner only, and without any key.
"""
