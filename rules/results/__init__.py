"""The rules on tool results.

Law: tidying and truncation depend only on the result and its own call, never on its age. Pairing also looks at the
neighbouring messages, and deduplication at the earlier results that are still forwarded.
"""
