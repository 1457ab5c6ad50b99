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
    UserMessage,
)
from ..results import as_content
from ..tokens import last_report, message_tokens, request_tokens

logger = logging.getLogger("agentloop")

SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can "
    "go on without this conversation: the task and every instruction of the user, word for word "
    "where it matters; what was done and found, with names, paths, numbers and identifiers; what "
    "failed; what is left to do next."
)
MIN_GAIN = 0.1  # of the context window: for less, a summary is not worth its request
FAILED = {"compaction": "failed"}
SHORT_RESULT = 2_000  # characters of each tool result, when the conversation itself is too long


@dataclass(frozen=True, kw_only=True)
class CompactionConfig:
    """When and how to compact: at `threshold_ratio` of `context_window` tokens, with `prompt`."""

    threshold_ratio: float = 0.80
    context_window: int = 128_000
    prompt: str = field(default=SUMMARY_PROMPT, repr=False)
    enabled: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.threshold_ratio <= 1 or self.context_window < 1:
            raise ValueError(
                f"threshold_ratio is a share from 0 to 1 of a context_window of tokens, not {self}"
            )


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
        keep = first_unseen(self.log)
        worth = tokens_to_gain(self.log, keep) >= MIN_GAIN * config.context_window
        if worth and size >= config.threshold_ratio * config.context_window:
            request = await self.compact(request, keep, size) or request
        try:
            return await super().call_model(request)
        except ContextWindowExceeded:
            # Results that the model has not seen may be what is too long: they go as well.
            shorter = replace(request, messages=shorten(request.messages))
            if (retry := await self.compact(shorter, new_prompt(self.log), size)) is None:
                raise
        return await super().call_model(retry)

    async def compact(self, request: Request, keep: int, size: int) -> Request | None:
        """Summarize up to record `keep` and give the request that goes on from there.

        None if there is nothing to summarize, or if it came to nothing.
        """
        if keep == 0 or self.compaction is None:
            return None
        ask = UserMessage(self.compaction.prompt, hidden=True)
        choice = "auto" if request.tool_choice == "auto" else "none"  # a forced tool would answer
        side = Request([*request.messages, ask], request.tools, choice, purpose="compaction")
        try:
            reply = await super().call_model(side)
        except Stop:
            raise
        except Exception as error:
            logger.warning("the conversation could not be summarized: %s", error)
            self.record(SideRequest(extra=FAILED))
            return None
        if reply.usage is not None:
            self.emit(UsageEvent(reply.usage, reply.model))
        if not reply.text.strip() or reply.stop_reason not in (None, "end", "tool_calls"):
            logger.warning("the summary was empty or cut off; the conversation stays as it is")
            self.record(SideRequest(reply.usage, extra=FAILED, model=reply.model))
            return None
        self.record(Summary(reply.text, keep, reply.usage, model=reply.model))
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


def new_prompt(log: Sequence[Record]) -> int:
    """Where the prompt begins that the model has not answered yet; the log's end without one."""
    at = len(log)
    while at and not isinstance(log[at - 1], AssistantMessage | ToolMessage):
        at -= 1
    return at


def tokens_to_gain(log: Sequence[Record], keep: int) -> int:
    """The tokens before record `keep` that a summary would replace: those that came since the last
    summary, or since one failed. The first task stays in any case."""
    begin = next((at + 1 for at, record in enumerate(log) if isinstance(record, UserMessage)), 0)
    for at in range(len(log) - 1, -1, -1):
        record = log[at]
        if isinstance(record, Summary):
            begin = record.keep
            break
        if isinstance(record, SideRequest) and (record.extra or {}).get("compaction"):
            begin = at
            break
    return sum(
        message_tokens(record)
        for record in log[begin:keep]
        if isinstance(record, UserMessage | AssistantMessage | ToolMessage)
    )


def shorten(messages: Sequence[Message]) -> list[Message]:
    """The messages with long tool results cut: for a conversation that no request can hold."""
    return [
        replace(message, content=as_content(message.text, SHORT_RESULT))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]
