"""Whether an answer refuses a prompt for its length, and what it says."""
