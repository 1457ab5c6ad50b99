"""Removed: `Channels` is a recipe."""

raise ImportError(
    "Channels is a recipe now: copy examples/recipes/channels.py, "
    "where agent.subscribe() is agent.follow()"
)
