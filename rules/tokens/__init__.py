"""What messages, tool schemas and images cost, given a way to count a text.

Law: an estimate says what it is estimated by; the same message always costs the same.
"""
