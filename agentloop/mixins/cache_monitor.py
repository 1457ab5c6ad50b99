"""Tells for each model request how much of it the provider may read from its cache.

Copy with: the core, common/tokens.py.

    class MyAgent(Agent, CacheMonitor): ...     # at the right, where requests leave the agent

A cached token costs about a tenth of a new one. The count follows Anthropic's rule, the strictest:
the cache has entries for a request up to its system prompt, and up to its end. So after a change
only the tools and the system prompt are read from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ..common.tokens import message_tokens, tool_tokens
from ..events import RequestEvent
from ..loop import Loop, Request
from ..messages import AssistantMessage, SystemMessage


class CacheMonitor(Loop):
    """Emits a RequestEvent before each request, which compares it with that model's last one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sent: dict[str, Request] = {}  # the last request to each model

    async def call_model(self, request: Request) -> AssistantMessage:
        model = (request.model or self.llm).model
        self.emit(compare(request, self._sent.get(model, Request(()))))
        self._sent[model] = request
        return await super().call_model(request)


def compare(request: Request, before: Request) -> RequestEvent:
    """Build the event that tells of a request, and of what it shares with the one before it."""
    new, old = request.messages, before.messages
    kept = 0
    if (request.tools, request.tool_choice) == (before.tools, before.tool_choice):
        for message, earlier in zip(new, old, strict=False):
            if message != earlier:
                break
            kept += 1
    read = kept  # how many leading messages the provider may read from its cache
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
    """Check that each request begins with all of the one before it, with `breaks` exceptions.

    requests: those that a model got, as `ScriptedModel.requests` holds them.

    Raises AssertionError, which shows for each such request the first message that changed, before
    and after. The two are equal if the tools or the tool_choice changed instead.
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
