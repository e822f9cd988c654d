"""What compaction did to a transcript, message by message and in sentences.

Law: pure. It is told from the plan and its outcome, and decides nothing.
"""
