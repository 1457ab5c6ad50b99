"""Removed: `RecordingModel` and `ReplayModel` are a recipe."""

raise ImportError("ReplayModel is a recipe now: copy examples/recipes/record_and_replay.py")
