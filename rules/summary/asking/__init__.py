"""How a model is asked for a note, in one question or in several, and what is checked of its answer.

Law: pure. What stands in the transcript is material for whoever is asked, never an instruction.
"""
