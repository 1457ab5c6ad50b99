"""Summarizes the conversation when it nears the context window, and goes on from the summary.

Copy with: the core, tokens.py.

The summary request is the very request that was due plus one user message, so that it reads the
provider's cache. What the model has not seen yet (new results, a new prompt) is kept word for word.
A summary that fails or is empty changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..errors import ContextWindowExceeded
from ..events import CompactionEvent, UsageEvent
from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Message,
    Record,
    Request,
    SideRequest,
    Stop,
    Summary,
    ToolMessage,
    Usage,
    UserMessage,
)
from ..results import as_content
from ..tokens import request_tokens

logger = logging.getLogger("agentloop")

SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can "
    "go on without this conversation: the task and every instruction of the user, word for word "
    "where it matters; what was done and found, with names, paths, numbers and identifiers; what "
    "failed; what is left to do next."
)
SHORT_RESULT = 2_000  # characters of each tool result, when the conversation itself is too long


@dataclass(frozen=True, kw_only=True)
class CompactionConfig:
    """When and how to compact: at `threshold_ratio` of `context_window` tokens, with `prompt`."""

    threshold_ratio: float = 0.80
    context_window: int = 128_000
    prompt: str = field(default=SUMMARY_PROMPT, repr=False)
    enabled: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.threshold_ratio <= 1:
            raise ValueError(f"threshold_ratio is a share from 0 to 1, not {self.threshold_ratio}")


class Compaction(Loop):
    """Summarizes before a request that would be too long, and after one that was.

    compaction: when and how; None turns it off.
    """

    compaction: CompactionConfig | None = CompactionConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.compaction) not in (CompactionConfig, type(None)):
            raise TypeError(
                f"compaction= takes CompactionConfig(...) or None, not {self.compaction!r}"
            )

    async def call_model(self, request: Request) -> AssistantMessage:
        config = self.compaction
        if config is None or not config.enabled or request.purpose != "step":
            return await super().call_model(request)
        size = request_tokens(request.messages, request.tools, reported=last_report(self.log))
        if size >= config.threshold_ratio * config.context_window:
            request = await self.compact(request, config, size) or request
        try:
            return await super().call_model(request)
        except ContextWindowExceeded:
            shorter = replace(request, messages=shorten(request.messages))
            if (retry := await self.compact(shorter, config, size)) is None:
                raise
        return await super().call_model(retry)

    async def compact(
        self, request: Request, config: CompactionConfig, size: int
    ) -> Request | None:
        """Summarize and give the request that goes on from there; None if that came to nothing."""
        if (keep := first_unseen(self.log)) == 0:
            return None
        ask = UserMessage(config.prompt, hidden=True)
        choice = "auto" if request.tool_choice == "auto" else "none"  # a forced tool would answer
        side = Request([*request.messages, ask], request.tools, choice, purpose="compaction")
        try:
            reply = await super().call_model(side)
        except Stop:
            raise
        except Exception as error:
            logger.warning("the conversation could not be summarized: %s", error)
            return None
        if reply.usage is not None:
            self.emit(UsageEvent(reply.usage))
        if not reply.text.strip() or reply.stop_reason not in (None, "end", "tool_calls"):
            logger.warning("the summary was empty or cut off; the conversation stays as it is")
            self.record(SideRequest(reply.usage))
            return None
        self.record(Summary(reply.text, keep, reply.usage))
        request = replace(request, messages=await self.context())
        self.emit(
            CompactionEvent(reply.text, size, request_tokens(request.messages, request.tools))
        )
        return request


def first_unseen(log: Sequence[Record]) -> int:
    """From which record on the model has not answered yet: its last calls, or the new prompt."""
    at = len(log)
    while at and not isinstance(log[at - 1], AssistantMessage):
        at -= 1
    reply = log[at - 1] if at else None
    return at - 1 if isinstance(reply, AssistantMessage) and reply.tool_calls else at


def last_report(log: Sequence[Record]) -> Usage | None:
    """What the provider reported for the newest reply, unless a summary has come since."""
    for record in reversed(log):
        if isinstance(record, Summary):
            return None
        if isinstance(record, AssistantMessage):
            return record.usage
    return None


def shorten(messages: Sequence[Message]) -> list[Message]:
    """The messages with long tool results cut: for a conversation that no request can hold."""
    return [
        replace(message, content=as_content(message.text, SHORT_RESULT))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]
