"""The dialect of chat completions."""
