"""Estimates the share of a request that the provider may read from its prompt cache.

Copy with: the core, common/tokens.py.

    class MyAgent(Agent, CacheMonitor): ...     # last, where requests leave the agent

A cached token costs about a tenth of an uncached token. The estimate follows Anthropic's rules, the
strictest of all providers: the cache has an entry at the end of the system prompt and an entry at
the end of the request. After a changed message, only the tools and the system prompt are read from
the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ..common.tokens import message_tokens, tool_tokens
from ..events import RequestEvent
from ..loop import Loop, Request
from ..messages import AssistantMessage, Message, SystemMessage


class CacheMonitor(Loop):
    """Emits a RequestEvent before every request, comparing it with the model's previous request."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # the previous request and the tokens of each of its messages, by model
        self._sent: dict[str, tuple[Request, list[int]]] = {}

    async def call_model(self, request: Request) -> AssistantMessage:
        model = (request.model or self.llm).model
        before, sizes = self._sent.get(model, (Request(()), []))
        self.emit(compare(request, before, sizes))
        self._sent[model] = request, sizes
        return await super().call_model(request)


def compare(request: Request, before: Request, sizes: list[int] | None = None) -> RequestEvent:
    """Compare a request with the previous request. Return the event with the result.

    sizes: the tokens of each message of `before`. They are replaced by those of `request`, for
        which only the messages after the first change are counted.
    """
    new, old = request.messages, before.messages
    kept = 0
    if (request.tools, request.tool_choice) == (before.tools, before.tool_choice):
        kept = count_equal(new, old)
    read = kept  # leading messages that the provider may read from its cache
    if kept < len(old):
        read = 1 if kept and isinstance(new[0], SystemMessage) else 0
    if sizes is None:
        sizes = [*map(message_tokens, old)]
    sizes[kept:] = map(message_tokens, new[kept:])
    changed = {*old[kept:]}
    again = [message for message in new[kept:] if message in changed]
    tokens = sum(sizes)
    tokens_of_tools = tool_tokens(request.tools)
    return RequestEvent(
        request.purpose,
        messages=len(new),
        kept=kept,
        tokens=tokens_of_tools + tokens,
        tokens_kept=tokens - sum(sizes[read:]) + (tokens_of_tools if kept else 0),
        tokens_again=sum(sizes[read:kept]) + message_tokens(again),
    )


def count_equal(new: Sequence[Message], old: Sequence[Message]) -> int:
    """Return the number of leading messages that are equal."""
    if new[: len(old)] == old:  # usually, and the comparison of lists is fast
        return len(old)
    for at, (message, earlier) in enumerate(zip(new, old, strict=False)):
        if message is not earlier and message != earlier:
            return at
    return len(new)


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
