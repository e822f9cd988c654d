"""`trimtab evaluate`: what a model still knows of a session once it was compacted.

Law: nothing is asked of a model before its price was told and agreed to. What stands in a session is data in every
prompt. No text of the session is written anywhere unless the user names the file, or asks to see it.
"""
