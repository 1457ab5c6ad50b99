"""Tells for each model request how much of it the provider may read from its cache.

Copy with: the core, tokens.py.

    class MyAgent(Agent, Meter): ...     # at the right, where the requests leave

A cached token costs about a tenth of a new one, so a change costs what stands behind it.
"""

from __future__ import annotations

from itertools import takewhile
from operator import eq

from ..events import RequestEvent
from ..loop import Loop, Request
from ..messages import AssistantMessage
from ..tokens import message_tokens, tool_tokens


class Meter(Loop):
    """Emits a RequestEvent before each request: it is compared with that model's last one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sent: dict[str, Request] = {}  # the last request to each model

    async def call_model(self, request: Request) -> AssistantMessage:
        model = (request.model or self.llm).model
        self.emit(compare(request, self._sent.get(model, Request(()))))
        self._sent[model] = request
        return await super().call_model(request)


def compare(request: Request, before: Request) -> RequestEvent:
    """The event that tells of a request, and of what it shares with the one before it."""
    new, old = request.messages, before.messages
    kept = sum(takewhile(bool, map(eq, new, old)))
    kept *= (request.tools, request.tool_choice) == (before.tools, before.tool_choice)
    moved = [message for message in new[kept:] if message in old[kept:]]
    tools = tool_tokens(request.tools)
    tokens, tokens_kept, again = (sum(map(message_tokens, m)) for m in (new, new[:kept], moved))
    tokens_kept += tools * bool(kept)
    return RequestEvent(request.purpose, len(new), kept, tokens + tools, tokens_kept, again)
