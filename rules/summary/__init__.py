"""What stands for the cut part of a conversation.

Law: derived from the transcript and the policy; asking a model is the shell's.
"""
