"""The configuration: from YAML to one frozen value.

Law: only load.py reads the environment and the file.
"""
