"""The events of a run, for listeners and streams.

Copy with: transcript.py and its imports.

Listeners get these objects, and `query_stream` yields them. Unlike the records of the log, they
aren't stored.
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
    pass


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

    The call may never follow, because a reply that breaks off is requested again. `tool_call_id` is
    "" if the provider sends no id.
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
    """The model calls a tool. If you read a `query_stream`, it starts when you ask for more.

    `args` has the model's arguments, or {} if they aren't a JSON object. `parent_id` is the id of
    the call whose tool made this one, or "" if the model made it: see `NestedCalls.call`.
    """

    tool: str
    args: JSON
    tool_call_id: str
    parent_id: str = ""


@dataclass
class ToolResultEvent(_Event):
    """The result of a tool call, as the model reads it, or the tool that made the call."""

    tool: str
    result: str
    tool_call_id: str
    is_error: bool = False


class HiddenUserMessageEvent(_Text):
    """The library added a user message to the conversation (a nudge, a reminder)."""


@dataclass
class CompactionEvent(_Event):
    """The conversation was summarized, or old turns were dropped, which changes the prefix."""

    summary: str
    tokens_before: int
    tokens_after: int


@dataclass
class OverBudgetEvent(_Event):
    """A request is over `context_budget`, even after its old turns were dropped.

    `tokens` is an estimate.
    """

    tokens: int
    budget: int


@dataclass
class ToolsChangedEvent(_Event):
    """The tools aren't those of the previous request, which changes the prefix.

    `tools` has their names now. Perhaps only a description or a schema has changed.
    """

    tools: list[str]


@dataclass
class PruneEvent(_Event):
    """Placeholders have replaced old results, which changes the prefix."""

    tool_call_ids: list[str]


@dataclass
class FinalResponseEvent(_Event):
    """The answer of the run. `stop_reason` is the Result's."""

    content: str
    stop_reason: str = "completed"


@dataclass
class SubAgentEvent(_Event):
    """An event of a sub-agent. `agent` is its tool, `tool_call_id` the call that runs it.

    If the sub-agent has a sub-agent, `event` may be another SubAgentEvent. The tokens of sub-agents
    also arrive as UsageEvents of their parent.
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
    """Raise ValueError for an `async def` function, which would never run."""
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
