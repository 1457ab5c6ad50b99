"""Deprecated: `Meter` is `CacheMonitor`, in agentloop.mixins.cache_monitor."""

from warnings import warn

from agentloop.mixins.cache_monitor import *  # noqa: F403
from agentloop.mixins.cache_monitor import CacheMonitor

Meter = CacheMonitor
warn(
    "Meter is deprecated: import CacheMonitor from agentloop.mixins.cache_monitor",
    DeprecationWarning,
    stacklevel=2,
)
