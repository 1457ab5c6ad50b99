"""Deprecated: `Repetition` is `LoopDetection`, in agentloop.mixins.loop_detection."""

from warnings import warn

from agentloop.mixins.loop_detection import *  # noqa: F403
from agentloop.mixins.loop_detection import LoopDetection

Repetition = LoopDetection
warn(
    "Repetition is deprecated: import LoopDetection from agentloop.mixins.loop_detection",
    DeprecationWarning,
    stacklevel=2,
)
