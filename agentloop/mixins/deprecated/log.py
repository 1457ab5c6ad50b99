"""Removed: `Log`, which printed a run, is a recipe."""

raise ImportError("Log is a recipe now: copy examples/recipes/print_a_run.py")
