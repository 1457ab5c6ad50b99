"""A chat and coding agent in the terminal, built on the public API of agentloop."""
