"""What messages, tool schemas and images cost, given a way to count a text."""
