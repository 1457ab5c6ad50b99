"""An event before each request: how much of it the provider can read from its prompt cache.

Use the mixin to find the change that makes you pay for a conversation again: a cached token costs
about a tenth of any other. The estimate follows Anthropic's rules, which are the strictest: there's
a cache entry at the end of the system prompt, and one at the end of the request. If a message has
changed, only the tools and the system prompt are read from the cache. Put the mixin last, where
requests leave the agent: `class MyAgent(Agent, CacheMonitor)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Message,
    Request,
    ScriptedModel,
    SystemMessage,
    message_tokens,
    tool_tokens,
)


@dataclass
class RequestEvent:
    """A model request is about to be sent. `tokens` is the estimated input.

    kept: how many messages are those of the request before, from the first on; 0 if the tools or
        tool_choice have changed.
    tokens_kept: the tokens of these messages, which a provider may read from its cache.
    tokens_again: the tokens after the first change, which you pay for again.
    """

    purpose: str
    messages: int
    kept: int
    tokens: int
    tokens_kept: int
    tokens_again: int


class CacheMonitor(Loop):
    """Compares every request with the model's last one, and emits a RequestEvent before it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # the previous request and the tokens of each of its messages, by model
        self._sent: dict[str, tuple[Request, list[int]]] = {}

    async def call_model(self, request: Request) -> AssistantMessage:
        model = (request.model or self.llm).model
        before, sizes = self._sent.get(model, (Request(()), []))
        event: Any = compare(request, before, sizes)  # not one of the events of `Event`
        self.emit(event)
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
    """How many messages are equal, from the first on."""
    if new[: len(old)] == old:  # usually, and the comparison of lists is fast
        return len(old)
    for at, (message, earlier) in enumerate(zip(new, old, strict=False)):
        if message is not earlier and message != earlier:
            return at
    return len(new)


class Monitored(Agent, CacheMonitor): ...


def report(event: object) -> None:
    if isinstance(event, RequestEvent):
        print(
            f"{event.tokens} tokens: {event.tokens_kept} cached, {event.tokens_again} billed again"
        )


if __name__ == "__main__":
    agent = Monitored(llm=ScriptedModel(lambda messages, tools: "Yes."), listeners=[report])
    for rules in ("Be brief.", "Be brief.", "Be brief. It is 9:40."):  # the third is a mistake
        agent.system_prompt = rules
        agent.run_sync("Is the oven hot? " * 20)
