"""What matters in a tool result that is too long: which of its lines, or which of its records, are kept."""
