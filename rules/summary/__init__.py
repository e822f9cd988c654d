"""What stands for the cut part of a conversation."""
