"""Agent capabilities: one kind of tool per file."""
