"""How much each line of a text matters, by the kind of the text."""
