"""What a run tells its listeners, as it happens.

Copy with: messages.py.

Listeners get these objects; `query_stream` yields them. Nothing here is stored: the log is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .messages import (
    JSON,
    AssistantMessage,
    Record,
    RequestRecord,
    RunEnd,
    ToolMessage,
    Usage,
    UserMessage,
)


@dataclass
class _Text:
    content: str


class TextDeltaEvent(_Text):
    """The next piece of the model's text, as it streams in."""


class ThinkingDeltaEvent(_Text):
    """The next piece of the model's thinking, as it streams in."""


@dataclass
class ToolCallDeltaEvent:
    """The next piece of a call's arguments, as it streams in.

    The call may never follow: a reply that is cut off is asked for again. `tool_call_id` is empty
    where the provider gives none.
    """

    content: str
    tool: str
    tool_call_id: str


class ThinkingEvent(_Text):
    """The model's thinking in one reply, whole."""


class TextEvent(_Text):
    """The text of one reply, whole."""


@dataclass
class UsageEvent:
    """What one model request used, and which model answered it."""

    usage: Usage
    model: str | None = None


@dataclass
class StepStartEvent:
    """A tool call begins. `step_id` is its id; `step_number` counts the agent's steps from 1."""

    step_id: str
    title: str
    step_number: int = 0


@dataclass
class StepCompleteEvent:
    """A tool call ended: `status` is "completed" or "error"."""

    step_id: str
    status: str
    duration_ms: float = 0.0


@dataclass
class ToolCallEvent:
    """The model calls a tool. The tool starts once a `query_stream` reader asks for what is next.

    `args` are the arguments as the model wrote them: {} if they are no JSON object.
    """

    tool: str
    args: JSON
    tool_call_id: str


@dataclass
class ToolResultEvent:
    """A tool call has its result, as the model will read it."""

    tool: str
    result: str
    tool_call_id: str
    is_error: bool = False


class HiddenUserMessageEvent(_Text):
    """The library put a user message into the conversation (a nudge, a reminder)."""


@dataclass
class CompactionEvent:
    """The conversation was summarized, or cut: the request's prefix changes here."""

    summary: str
    tokens_before: int
    tokens_after: int


@dataclass
class ToolsChangedEvent:
    """The tools on offer differ from the last request's: the request's prefix changes here.

    `tools` are their names now; a description or a schema may have changed as well.
    """

    tools: list[str]


@dataclass
class RequestEvent:
    """A model request goes out. `tokens` estimates its input.

    `kept` is how many leading messages equal those of the last request, byte for byte; 0 if the
    tools or tool_choice changed. `tokens_kept` are the tokens in them: a provider may read these
    from its cache. `tokens_again` are tokens that were in the last request too, but behind a
    change: they are billed again.
    """

    purpose: str
    messages: int
    kept: int
    tokens: int
    tokens_kept: int
    tokens_again: int


@dataclass
class PruneEvent:
    """Old results were replaced by placeholders: the request's prefix changes here."""

    tool_call_ids: list[str]


@dataclass
class FinalResponseEvent:
    """The run's answer. `stop_reason` is that of its Result."""

    content: str
    stop_reason: str = "completed"


@dataclass
class SubAgentEvent:
    """An event of a sub-agent. `agent` is the tool, `tool_call_id` the call that started it.

    `event` is another SubAgentEvent if a sub-agent of the sub-agent caused it. The tokens of
    sub-agents are also told by UsageEvents of their own.
    """

    agent: str
    tool_call_id: str
    event: Event


Delta = TextDeltaEvent | ThinkingDeltaEvent | ToolCallDeltaEvent
Event = (
    Delta
    | TextEvent
    | ThinkingEvent
    | UsageEvent
    | StepStartEvent
    | StepCompleteEvent
    | ToolCallEvent
    | ToolResultEvent
    | HiddenUserMessageEvent
    | CompactionEvent
    | ToolsChangedEvent
    | RequestEvent
    | PruneEvent
    | SubAgentEvent
    | FinalResponseEvent
)
Listener = Callable[[Event], None]
OnDelta = Callable[[Delta], None]
EventQueue = asyncio.Queue[Event | None]  # None: the run has ended


def events_of(record: Record) -> Iterator[Event]:
    """Yield the events that tell of a new record of the log."""
    if isinstance(record, RequestRecord) and record.usage is not None:
        yield UsageEvent(record.usage, record.model)
    if isinstance(record, AssistantMessage):
        if record.thinking:
            yield ThinkingEvent(record.thinking)
        if record.text.strip():
            yield TextEvent(record.text)
    elif isinstance(record, ToolMessage):
        yield ToolResultEvent(record.tool_name, record.text, record.tool_call_id, record.is_error)
        status = "error" if record.is_error else "completed"
        yield StepCompleteEvent(record.tool_call_id, status, (record.seconds or 0) * 1000)
    elif isinstance(record, UserMessage) and record.hidden:
        yield HiddenUserMessageEvent(record.text)
    elif isinstance(record, RunEnd):
        yield FinalResponseEvent(record.text, record.stop_reason)
