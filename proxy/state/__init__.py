"""State that outlives a request and is shared between processes.

Law: nothing here knows a request. What one client teaches reaches others only through state/models.
"""
