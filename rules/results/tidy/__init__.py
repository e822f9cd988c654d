"""What a tool result loses without losing meaning.

Law: never longer than what came in; a second pass changes nothing.
"""
