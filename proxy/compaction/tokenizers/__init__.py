"""How texts are counted: exactly by a vocabulary, by an optional engine, or estimated."""
