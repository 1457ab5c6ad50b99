"""The chat in examples/agentloop_chat: its functions, and the program in a real terminal."""
