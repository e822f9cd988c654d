"""Whether an answer refuses a prompt for its length, and what it says.

Law: how a server words a refusal is a row with its sample in wordings.txt, never a branch.
"""
