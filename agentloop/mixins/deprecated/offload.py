"""Removed: `Offload` is a recipe."""

raise ImportError("Offload is a recipe now: copy examples/recipes/offload.py")
