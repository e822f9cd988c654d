"""Measures what a chat costs in seconds behind llama.cpp's real server, with and without trimtab."""
