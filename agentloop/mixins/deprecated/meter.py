"""Removed: `Meter`, later `CacheMonitor`, is a recipe."""

raise ImportError("CacheMonitor is a recipe now: copy examples/recipes/cache_monitor.py")
