"""One module per provider, and what all providers have in common."""
