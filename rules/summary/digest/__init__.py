"""The digest: a summary made without a model.

Law: each module finds one kind of thing in the messages: statements, steps, errors. `write` puts them together.
"""
