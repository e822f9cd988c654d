"""What a tool result loses without losing meaning."""
