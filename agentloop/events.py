"""What a run tells its listeners, as it happens.

Copy with: messages.py.

Listeners get these objects; `query_stream` yields them. Nothing here is stored: the log is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .messages import Message, Usage


@dataclass(slots=True)
class TextDeltaEvent:
    """The next piece of the model's text, as it streams in."""

    content: str


@dataclass(slots=True)
class ThinkingDeltaEvent:
    """The next piece of the model's thinking, as it streams in."""

    content: str


@dataclass(slots=True)
class ThinkingEvent:
    """The model's thinking in one reply, whole."""

    content: str


@dataclass(slots=True)
class TextEvent:
    """The text of one reply, whole."""

    content: str


@dataclass(slots=True)
class RequestEvent:
    """A model request goes out, with so many messages and an estimate of its input tokens.

    `kept` is with how many of the last request's messages it begins, byte for byte; 0 if the tools
    or tool_choice changed. Of the tokens, `tokens_kept` stand in what was kept, so that a provider
    may read them from its cache; `tokens_again` were in the last request too, but behind a change,
    and are billed again.
    """

    purpose: str
    messages: int
    kept: int
    tokens: int
    tokens_kept: int = 0
    tokens_again: int = 0


@dataclass(slots=True)
class UsageEvent:
    """What one model request used, and which model answered it."""

    usage: Usage
    model: str | None = None


@dataclass(slots=True)
class StepStartEvent:
    """A tool call begins. `step_id` is its id; `step_number` counts the agent's steps from 1."""

    step_id: str
    title: str
    step_number: int = 0


@dataclass(slots=True)
class StepCompleteEvent:
    """A tool call ended: `status` is "completed" or "error"."""

    step_id: str
    status: str
    duration_ms: float = 0.0


@dataclass(slots=True)
class ToolCallEvent:
    """The model calls a tool. The tool starts once a `query_stream` reader asks for what is next.

    `args` are the arguments as the model wrote them: {} if they are no JSON object.
    """

    tool: str
    args: dict[str, Any]
    tool_call_id: str


@dataclass(slots=True)
class ToolResultEvent:
    """A tool call has its result, as the model will read it."""

    tool: str
    result: str
    tool_call_id: str
    is_error: bool = False


@dataclass(slots=True)
class HiddenUserMessageEvent:
    """The library put a user message into the conversation (a nudge, a reminder)."""

    content: str


@dataclass(slots=True)
class PruneEvent:
    """Old results were replaced by placeholders: the request's prefix changes here."""

    tool_call_ids: list[str]


@dataclass(slots=True)
class CompactionEvent:
    """The conversation was summarized, or cut: the request's prefix changes here.

    `dropped` are the messages that the model sees no more; the log keeps them.
    """

    summary: str
    tokens_before: int
    tokens_after: int
    dropped: Sequence[Message] = ()


@dataclass(slots=True)
class ToolsChangedEvent:
    """The tools on offer differ from the last request's: the request's prefix changes here."""

    added: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class FinalResponseEvent:
    """The run's answer. `stop_reason` is that of its Result."""

    content: str
    stop_reason: str = "completed"


Event: TypeAlias = (
    TextDeltaEvent
    | ThinkingDeltaEvent
    | ThinkingEvent
    | TextEvent
    | RequestEvent
    | UsageEvent
    | StepStartEvent
    | StepCompleteEvent
    | ToolCallEvent
    | ToolResultEvent
    | HiddenUserMessageEvent
    | PruneEvent
    | CompactionEvent
    | ToolsChangedEvent
    | FinalResponseEvent
)
Listener: TypeAlias = Callable[[Any], None]
OnDelta: TypeAlias = Callable[[TextDeltaEvent | ThinkingDeltaEvent], None]
