"""What messages, tool schemas and images cost in tokens, given a function that counts a text.

Law: each estimate names its source; the same message always costs the same.
"""
