"""Text tools that know no message."""
