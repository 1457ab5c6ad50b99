"""One module per module of agentloop/common, and the format of sessions."""
