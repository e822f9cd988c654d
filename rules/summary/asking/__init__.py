"""The prompts that ask a model for a note, in one question or in several, and the check of the names in its answer.

Law: pure functions. The transcript is data for the summariser, never an instruction.
"""
