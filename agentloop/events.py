"""The events of a run, for listeners and streams.

Copy with: transcript.py and its imports.

Listeners receive these objects, and `query_stream` yields them. Events are not stored, unlike the
records of the log.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from .messages import JSON, Advised, AssistantMessage, ToolMessage, Usage, UserMessage
from .transcript import Record, RequestRecord, RunEnd
from .waiting import logger


class _Event(Advised):
    """Base of events."""


@dataclass
class _Text(_Event):
    content: str


class TextDeltaEvent(_Text):
    """The next piece of the model's text in a stream."""


class ThinkingDeltaEvent(_Text):
    """The next piece of the model's thinking in a stream."""


@dataclass
class ToolCallDeltaEvent(_Event):
    """The next piece of a call's arguments in a stream.

    The call may never follow, because truncated replies are requested again. `tool_call_id` is
    empty if the provider sends no id.
    """

    content: str
    tool: str
    tool_call_id: str


class ThinkingEvent(_Text):
    """The complete thinking of one reply."""


class TextEvent(_Text):
    """The complete text of one reply."""


@dataclass
class UsageEvent(_Event):
    """The usage of one model request, and the model that answered."""

    usage: Usage
    model: str | None = None


@dataclass
class StepStartEvent(_Event):
    """A tool call starts. `step_id` is its id; `step_number` counts the run's steps from 1."""

    step_id: str
    title: str
    step_number: int = 0


@dataclass
class StepCompleteEvent(_Event):
    """A tool call has ended: `status` is "completed" or "error"."""

    step_id: str
    status: str
    duration_ms: float = 0.0


@dataclass
class ToolCallEvent(_Event):
    """The model calls a tool. The tool starts when a `query_stream` reader requests the next event.

    `args` contains the arguments of the model, or {} for arguments other than a JSON object.
    `parent_id` is the id of the call whose tool made this call, or "": see `NestedCalls.call`.
    """

    tool: str
    args: JSON
    tool_call_id: str
    parent_id: str = ""


@dataclass
class ToolResultEvent(_Event):
    """The result of a tool call, as returned to the model or to the calling tool."""

    tool: str
    result: str
    tool_call_id: str
    is_error: bool = False


class HiddenUserMessageEvent(_Text):
    """The library added a user message to the conversation (a nudge, a reminder)."""


@dataclass
class CompactionEvent(_Event):
    """The conversation was summarized, or old turns were dropped: the request prefix changes."""

    summary: str
    tokens_before: int
    tokens_after: int


@dataclass
class OverBudgetEvent(_Event):
    """A request exceeds `context_budget`, and would exceed it even without old turns.

    `tokens` is an estimate.
    """

    tokens: int
    budget: int


@dataclass
class ToolsChangedEvent(_Event):
    """The tools differ from those of the previous request: the request prefix changes.

    `tools` contains the current names; a description or a schema may also have changed.
    """

    tools: list[str]


@dataclass
class PruneEvent(_Event):
    """Old results were replaced by placeholders: the request prefix changes."""

    tool_call_ids: list[str]


@dataclass
class FinalResponseEvent(_Event):
    """The answer of the run. `stop_reason` equals that of the Result."""

    content: str
    stop_reason: str = "completed"


@dataclass
class SubAgentEvent(_Event):
    """An event of a sub-agent. `agent` is the tool, `tool_call_id` the call that started it.

    For a sub-agent of a sub-agent, `event` is another SubAgentEvent. Separate UsageEvents also
    report the tokens of sub-agents.
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
    | OverBudgetEvent
    | ToolsChangedEvent
    | PruneEvent
    | SubAgentEvent
    | FinalResponseEvent
)


def check_listener(listener: Callable[[Event], None]) -> Callable[[Event], None]:
    """Refuse `async def` functions, which would never run. Raises ValueError."""
    if inspect.iscoroutinefunction(listener):
        raise ValueError(
            "a listener must be a plain function, not `async def`: put the event into a queue, or "
            "read agent.query_stream(prompt)"
        )
    return listener


Listener = Annotated[Callable[[Event], None], AfterValidator(check_listener)]
OnDelta = Callable[[Delta], None]
EventQueue = asyncio.Queue[Event | None]  # None: an EventStream has ended


def notify(listeners: Iterable[Listener], event: Event) -> None:
    """Call the listeners with an event. A listener's exception is logged."""
    for listener in [*listeners]:  # a copy, because listeners may remove themselves
        try:
            listener(event)
        except Exception:
            logger.exception("a listener failed on %s", type(event).__name__)


def events_of(record: Record) -> Iterator[Event]:
    """Yield the events for a new record of the log."""
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
