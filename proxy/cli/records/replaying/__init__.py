"""What `trimtab replay` does with recordings, logs and request bodies.

Law: no network. What is counted here is counted by the metrics' own code.
"""
