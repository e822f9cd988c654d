"""What happened, told without a model.

Law: each module finds one thing in the messages: statements, steps, errors. `write` puts them together.
"""
