"""Estimates the share of a request that the provider may read from its prompt cache.

Copy with: the core, common/tokens.py.

    class MyAgent(Agent, CacheMonitor): ...     # last, where requests leave the agent

A cached token costs about a tenth of an uncached token. The estimate follows Anthropic's rules, the
strictest of all providers: the cache has an entry at the end of the system prompt and an entry at
the end of the request. After a changed message, only the tools and the system prompt are read from
the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ..common.tokens import message_tokens, tool_tokens
from ..events import RequestEvent
from ..loop import Loop, Request
from ..messages import AssistantMessage, SystemMessage


class CacheMonitor(Loop):
    """Emits a RequestEvent before every request, comparing it with the model's previous request."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sent: dict[str, Request] = {}  # the previous request, by model

    async def call_model(self, request: Request) -> AssistantMessage:
        model = (request.model or self.llm).model
        self.emit(compare(request, self._sent.get(model, Request(()))))
        self._sent[model] = request
        return await super().call_model(request)


def compare(request: Request, before: Request) -> RequestEvent:
    """Compare a request with the previous request. Return the event with the result."""
    new, old = request.messages, before.messages
    kept = 0
    if (request.tools, request.tool_choice) == (before.tools, before.tool_choice):
        for message, earlier in zip(new, old, strict=False):
            if message != earlier:
                break
            kept += 1
    read = kept  # leading messages that the provider may read from its cache
    if kept < len(old):
        read = 1 if kept and isinstance(new[0], SystemMessage) else 0
    again = [message for message in new[read:] if message in old[read:]]
    tokens_of_tools = tool_tokens(request.tools)
    tokens_kept = message_tokens(new[:read])
    if kept:
        tokens_kept += tokens_of_tools
    return RequestEvent(
        request.purpose,
        messages=len(new),
        kept=kept,
        tokens=tokens_of_tools + message_tokens(new),
        tokens_kept=tokens_kept,
        tokens_again=message_tokens(again),
    )


def assert_prefix_stable(requests: Iterable[Request], *, breaks: int = 0) -> None:
    """Assert that all requests start with the complete previous request.

    requests: the requests of a model, such as `ScriptedModel.requests`.
    breaks: the number of permitted exceptions.

    Raises AssertionError for additional exceptions. The error contains the first changed message of
    every violating request, before and after. Both are equal if the tools or tool_choice changed.
    """
    changes: list[str] = []
    for number, (before, after) in enumerate(pairwise(requests), 2):
        at = compare(after, before).kept
        if at < len(before.messages):
            now = after.messages[at : at + 1] or "gone"
            changes.append(
                f"request {number} changes messages[{at}], or the tools:"
                f"\n  was {before.messages[at]}\n  now {now}"
            )
    if len(changes) > breaks:
        raise AssertionError("\n".join(changes))
