"""Deprecated: `Inbox` is `MessageQueue`, in agentloop.mixins.message_queue."""

from warnings import warn

from agentloop.mixins.message_queue import *  # noqa: F403
from agentloop.mixins.message_queue import MessageQueue

Inbox = MessageQueue
warn(
    "Inbox is deprecated and will be removed in 1.1: "
    "import MessageQueue from agentloop.mixins.message_queue",
    DeprecationWarning,
    stacklevel=2,
)
