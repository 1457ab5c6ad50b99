"""What an agent can do: each file gives it some tools."""
