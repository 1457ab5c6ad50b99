"""Removed: `Repetition`, later `LoopDetection`, is a recipe."""

raise ImportError("LoopDetection is a recipe now: copy examples/recipes/loop_detection.py")
