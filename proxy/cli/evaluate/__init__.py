"""`trimtab evaluate`: measures what a model still knows of a session after compaction.

Law: no model is asked before the user has seen the price and agreed. The text of a session is data in every prompt. It
is written only to a file that the user names, and printed only if the user asks for it.
"""
