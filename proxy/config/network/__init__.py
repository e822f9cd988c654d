"""How an upstream is reached: through which proxy, and whose certificates are trusted."""
