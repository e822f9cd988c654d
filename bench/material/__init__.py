"""The material of measurements: recorded sessions and tool outputs, or made-up ones if the recordings are absent.

Law: the same call returns the same bytes.
"""
