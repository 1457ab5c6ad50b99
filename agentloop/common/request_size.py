"""How many input tokens a request has: an estimate, corrected by what the provider reports.

Copy with: the core, common/summary.py, common/tokens.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import cast

from ..events import CompactionEvent
from ..loop import Loop
from ..messages import AssistantMessage, Message
from ..model import Request
from ..tools import Tool
from ..waiting import logger
from .summary import Summary
from .tokens import message_tokens, tool_tokens

LEAST_RATE, MOST_RATE = 0.5, 4.0  # tokens of any tokenizer per estimated token


class MeasuresRequests(Loop):
    """The base of mixins that keep requests short."""

    # not annotated, and therefore not set in a fork
    token_rate = 1.0  # the provider's tokens per estimated token, by the newest usage
    summary_is_due = False  # the next request comes after a summary, so nothing needs to be dropped
    _counted = (cast(Sequence[Message], ()), 0)  # the newest messages, and their tokens
    _declared = (cast(Sequence[Tool], ()), 0)  # the newest tools, and their tokens

    async def call_model(self, request: Request) -> AssistantMessage:
        reply = await super().call_model(request)
        if request.purpose == "turn" and reply.usage and reply.usage.input_tokens:
            rate = reply.usage.input_tokens / self._estimate(request)
            if rate < LEAST_RATE:
                warn_of_usage(reply.model)
                rate = 1.0
            self.token_rate = min(rate, MOST_RATE)
        return reply

    def request_tokens(self, request: Request) -> int:
        """How many input tokens a request has, as its provider would count them."""
        return round(self.token_rate * self._estimate(request))

    async def apply_summary(self, summary: Summary, request: Request) -> Request:
        """Record a summary, and make a request of what the model now sees, instead of `request`."""
        self.add(summary)  # before the estimates, during which another thread may clear the history
        before = self.request_tokens(request)
        request = replace(request, messages=await self.context())
        self.emit(CompactionEvent(summary.content, before, self.request_tokens(request)))
        return request

    def _estimate(self, request: Request) -> int:
        """Estimate a request. Only what the newest request didn't have is counted."""
        messages, tokens = self._counted
        if request.messages[: len(messages)] != messages:
            messages, tokens = (), 0
        tokens += message_tokens(request.messages[len(messages) :])
        self._counted = request.messages, tokens
        if request.tools != self._declared[0]:
            self._declared = request.tools, tool_tokens(request.tools)
        return tokens + self._declared[1]


@cache
def warn_of_usage(model: str | None) -> None:
    """Say once that a provider's counts aren't used."""
    logger.warning(
        "the provider of %r reports less than half of the estimated input tokens: its counts are "
        "wrong, or it hides part of the requests. Their sizes are estimated instead",
        model,
    )
