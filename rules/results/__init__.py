"""What happens to tool results.

Law: decided by the result and its own call, never by its age.
"""
