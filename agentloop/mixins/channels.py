"""Three numbered channels over what a run tells: progress, control and monitor.

Copy with: the core.

    class Served(Channels, Session, Agent): ...

    async for entry in agent.subscribe("progress", since=41):    # 42 and what follows
        print(entry.number, entry.kind, entry.item)
    stop = agent.on("ToolResultEvent", lambda entry: print(entry.item.result))

An item is an event, or a mark of the log such as `RunStart`. Its number is its place in the log, so
it is the same after a restart. An event that leaves no record (a delta, say) has the number of the
record before it. A subscription with `since` begins with what the log holds behind that number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from pydantic import PositiveInt

from ..events import Event, events_of
from ..loop import Loop, Request
from ..messages import AssistantMessage, Record, Stop, ToolMessage, Unknown

logger = logging.getLogger("agentloop")

Channel: TypeAlias = Literal["progress", "control", "monitor"]
Handler: TypeAlias = "Callable[[Entry], object]"
CONTROL = ("Ask", "Decision")
PROGRESS = (
    *("RunStart", "UserMessage", "HiddenUserMessageEvent", "TextDeltaEvent", "TextEvent"),
    *("ThinkingDeltaEvent", "ThinkingEvent", "ToolCallDeltaEvent", "StepStartEvent"),
    *("ToolCallEvent", "ToolResultEvent", "StepCompleteEvent", "FinalResponseEvent"),
)  # whatever else there is goes to the monitor


@dataclass(slots=True)
class ErrorEvent:
    """A model request failed: the error's type and message."""

    message: str


@dataclass(slots=True)
class MissedEvent:
    """The reader was slow, and missed so many. `subscribe(since=entry.number)` has them."""

    entries: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of a channel. `kind` is the name of its type."""

    number: int
    channel: Channel
    kind: str
    item: Any


@dataclass(eq=False)
class Subscription:
    """The entries that one reader wants: an async iterator that goes on until `close()`.

    With a `handler`, each goes to it at once instead.
    """

    agent: Loop
    channels: Collection[str]
    kinds: Collection[str]
    size: int
    handler: Handler | None = None

    def __post_init__(self) -> None:
        self._entries = asyncio.Queue[Entry | None]()
        self._missed = MissedEvent(0)

    def __call__(self, item: Any) -> None:
        """Take what has just happened. Where there is no room, count it as missed."""
        entry = _entry(len(self.agent.log) - 1, item)
        if not self._wants(entry):
            return
        if self.handler is not None:
            try:
                self.handler(entry)
            except Exception:
                logger.exception("a handler failed on %s", entry.kind)
        elif self._entries.qsize() < self.size:
            self._entries.put_nowait(entry)
            self._missed = MissedEvent(0)
        else:
            if not self._missed.entries:
                self._entries.put_nowait(_entry(entry.number - 1, self._missed))
            self._missed.entries += 1

    def _wants(self, entry: Entry) -> bool:
        kind, channel = entry.kind, entry.channel
        return kind in (self.kinds or (kind,)) and channel in (self.channels or (channel,))

    def replay(self, since: int) -> None:
        """Begin with what the log holds behind a number."""
        for number, record in enumerate(self.agent.log):
            for item in _items(record) if number > since else ():
                if self._wants(entry := _entry(number, item)):
                    self._entries.put_nowait(entry)

    def close(self) -> None:
        self.agent.listeners = [each for each in self.agent.listeners if each is not self]
        self._entries.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        if entry := await self._entries.get():
            return entry
        self._entries.put_nowait(None)
        raise StopAsyncIteration


class Channels(Loop):
    """Tells each subscriber of what it wants to know, under numbers that survive a restart.

    channel_size: how many entries wait for a slow reader before it misses some.
    """

    channel_size: PositiveInt = 1000

    def record(self, record: Record) -> None:
        super().record(record)
        if not isinstance(record, AssistantMessage | ToolMessage):  # their events tell of them
            for listener in self.listeners:
                if isinstance(listener, Subscription):
                    listener(record)

    async def call_model(self, request: Request) -> AssistantMessage:
        try:
            return await super().call_model(request)
        except Stop:
            raise
        except Exception as error:
            self.emit(ErrorEvent(f"{type(error).__name__}: {error}"))
            raise

    def subscribe(
        self,
        *channels: Channel,
        since: int | None = None,
        kinds: Collection[str] = (),
        handler: Handler | None = None,
    ) -> Subscription:
        """An async iterator over the entries of these channels (all without one) and kinds.

        It has what happens from now on, and before that what the log holds behind a number. It
        goes on from run to run. With a `handler`, each entry goes to that function instead.
        """
        new = Subscription(self, channels, kinds, self.channel_size, handler)
        if since is not None:
            new.replay(since)
        self.listeners = [*self.listeners, new]
        return new

    def on(self, kind: str, handler: Handler) -> Callable[[], None]:
        """Call a function with each entry of a kind ("ToolResultEvent"). Returns what ends that.

        An error of the function is logged, and stops nothing.
        """
        return self.subscribe(kinds=(kind,), handler=handler).close

    def fork(self, at: int | None = None, **settings: Any) -> Self:
        """As in Loop; subscriptions stay with this agent."""
        twin = super().fork(at, **settings)
        twin.listeners = [e for e in twin.listeners if not isinstance(e, Subscription)]
        return twin


def _items(record: Record) -> list[Event | Record]:
    """What is told of a record: its events, or itself if it is no message of the model."""
    own = [] if isinstance(record, AssistantMessage | ToolMessage) else [record]
    return [*own, *events_of(record)]


def _entry(number: int, item: Any) -> Entry:
    kind = item.data["type"] if isinstance(item, Unknown) else type(item).__name__
    channel: Channel = "progress" if kind in PROGRESS else "monitor"
    return Entry(number, "control" if kind in CONTROL else channel, kind, item)
