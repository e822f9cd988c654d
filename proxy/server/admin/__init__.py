"""The proxy's own pages: those under /trimtab/, and the metrics page.

Law: no page shows message text or a credential.
"""
