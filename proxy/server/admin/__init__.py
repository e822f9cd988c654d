"""The proxy's own pages under /trimtab/ and the metrics page.

Law: no page shows message text or a credential.
"""
