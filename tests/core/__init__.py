"""The core, and what you run while you edit: ten seconds, with pytest and respx alone."""
