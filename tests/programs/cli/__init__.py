"""The command `agentloop`: bundle, demo, replay, view."""
