"""What a request shares with the one before it: the prefix that a provider has in its cache.

Copy with: messages.py, events.py, tokens.py, transcript.py.

A cached token costs about a tenth of a new one, so what a change costs is what stands behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .events import RequestEvent
from .messages import AssistantMessage, Message, Request, Usage
from .tokens import counter, message_tokens, tool_tokens
from .transcript import common_prefix

PRIOR = 256  # tokens by which the estimate is trusted before anything was reported
TOO_MUCH = 20  # times the estimate: a report of more than that is none


class PrefixMeter:
    """Measures each request of an agent against the one before it, and against the reports.

    An estimate is what the provider last reported, plus what has come or gone since, at the rate
    of reported to estimated tokens.
    """

    def __init__(self) -> None:
        self._count = counter()
        self._messages: Sequence[Message] = ()  # of the last request that went out
        self._sizes = [0]  # the tokens of its first 0, 1, 2, ... messages
        self._offer: Any = None
        self._fixed = 0  # the tokens of its tools
        self._estimated, self._reported, self._rate = 0, 0, 1.0
        self._measured: tuple[Request, int, list[int]] | None = None

    def tokens(self, request: Request) -> int:
        """The estimated input tokens of a request."""
        if self._offer is None:
            self._learn_from(request)
        kept, new = self._measure(request)
        return self._scaled(self._sizes[kept] + sum(new) + self._tool_tokens(request))

    def send(self, request: Request) -> RequestEvent:
        """What a request has in common with the one before it; it is the one before the next."""
        kept, new = self._measure(request)
        offer = (request.tools, request.tool_choice)
        known = 0 if self._offer is not None and offer != self._offer else kept
        again = set(self._messages[known:])
        self._fixed, self._offer = self._tool_tokens(request), offer
        del self._sizes[kept + 1 :]
        for size in new:
            self._sizes.append(self._sizes[-1] + size)
        self._messages, self._measured = request.messages, None
        rebilled = sum(
            self._sizes[at + 1] - self._sizes[at]
            for at in range(known, len(request.messages) if again else known)
            if request.messages[at] in again
        )
        read = self._sizes[known] + self._fixed if known else 0
        return RequestEvent(
            request.purpose,
            messages=len(request.messages),
            kept=known,
            tokens=(total := self._scaled(self._sizes[-1] + self._fixed)),
            tokens_kept=min(total, round(read * self._rate)),
            tokens_again=round(rebilled * self._rate),
        )

    def report(self, reply: AssistantMessage) -> None:
        """Learn from what the provider says that the last request and its reply had."""
        if reply.usage is not None:
            self._learn(self._sizes[-1] + self._fixed, reply, reply.usage)

    def _learn(self, estimated: int, reply: AssistantMessage, usage: Usage) -> None:
        if not 0 < usage.input_tokens < TOO_MUCH * (estimated + PRIOR):  # nobody can mean that
            return
        rate = (usage.input_tokens + PRIOR) / (estimated + PRIOR)
        self._rate = min(max(rate, 0.5), 2.0)
        self._estimated = estimated + message_tokens(reply, self._count)
        self._reported = usage.total_tokens - usage.reasoning_tokens

    def _learn_from(self, request: Request) -> None:
        """Before an agent's first request: from the newest reply in the history it begins with."""
        for at in range(len(request.messages) - 1, -1, -1):
            reply = request.messages[at]
            if isinstance(reply, AssistantMessage) and reply.usage and reply.usage.input_tokens > 0:
                sizes = (message_tokens(one, self._count) for one in request.messages[:at])
                self._learn(sum(sizes) + self._tool_tokens(request), reply, reply.usage)
                return

    def _scaled(self, estimated: int) -> int:
        return max(0, self._reported + round(self._rate * (estimated - self._estimated)))

    def _measure(self, request: Request) -> tuple[int, list[int]]:
        """With how many of the last request's messages this one begins, and the tokens of the rest.

        Once for a request, as the one that asks how long it is often sends it.
        """
        if self._measured is None or self._measured[0] is not request:
            kept = common_prefix(self._messages, request.messages)
            sizes = [message_tokens(each, self._count) for each in request.messages[kept:]]
            self._measured = request, kept, sizes
        return self._measured[1:]

    def _tool_tokens(self, request: Request) -> int:
        if self._offer is not None and request.tools == self._offer[0]:
            return self._fixed
        return tool_tokens(request.tools, self._count)
