"""How texts are counted: exactly by a vocabulary, by an optional engine, or estimated.

Law: an exact count is the vocabulary's own, whatever engine makes it; what only guesses says so.
"""
