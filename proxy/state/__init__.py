"""What outlives a request and is shared between processes."""
