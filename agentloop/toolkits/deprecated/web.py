"""Removed: `web_fetch` is a part of the program agentloop_chat."""

raise ImportError(
    "web_fetch is a recipe now: import agentloop_chat.web_fetch, "
    "or copy its file: see examples/recipes/web_fetch.py"
)
