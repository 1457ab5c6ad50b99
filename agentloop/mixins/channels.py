"""Three numbered channels over what a run tells: progress, control and monitor.

Copy with: the core.

    class Served(Channels, Session, Agent): ...

    async for entry in agent.subscribe("progress", since=41):    # 42 and what follows
        print(entry.number, entry.kind, entry.item)
    stop = agent.on("ToolResultEvent", lambda entry: print(entry.item.result))

An item is an event, or a record that no event tells of, such as a prompt or a `RunStart`. Entries
are made from the records of the log, so a replay is what was seen live: the number of an entry is
its place among them, also after a restart. An event that leaves no record (a delta, say) has the
number of the entry before it and is only for those who listen at the time. A slow reader may miss
such events, and no others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Any, Literal, Self, get_args

from ..events import (
    CompactionEvent,
    Delta,
    Event,
    HiddenUserMessageEvent,
    PruneEvent,
    RequestEvent,
    StepStartEvent,
    SubAgentEvent,
    ToolCallEvent,
    ToolsChangedEvent,
    UsageEvent,
    events_of,
)
from ..loop import Loop
from ..messages import (
    Ask,
    AssistantMessage,
    Decision,
    Mark,
    Record,
    Unknown,
    UserMessage,
)
from ..transcript import Fold, Records

Channel = Literal["progress", "control", "monitor"]
UNRECORDED = CompactionEvent | PruneEvent | RequestEvent | SubAgentEvent | ToolsChangedEvent


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of a channel."""

    number: int
    item: Event | Record

    @property
    def kind(self) -> str:
        """Return the name of the item's type."""
        return type(self.item).__name__

    @property
    def channel(self) -> Channel:
        """Return "control" for asks and decisions, "progress" for what is said and done.

        Anything else is "monitor".
        """
        if isinstance(self.item, Ask | Decision):
            return "control"
        if isinstance(self.item, Mark | Unknown | UsageEvent | HiddenUserMessageEvent | UNRECORDED):
            return "monitor"
        return "progress"


class Entries(Fold):
    """The entries that the records of a log make."""

    steps = 0

    def __init__(self, log: Records = ()) -> None:
        super().__init__(log)
        self.entries: list[Entry] = []

    def take(self, at: int, record: Any) -> None:
        items: list[Any] = [*events_of(record)]
        if isinstance(record, AssistantMessage):
            for call in record.tool_calls:
                self.steps += 1
                items.append(StepStartEvent(call.id, call.name, self.steps))
                items.append(ToolCallEvent(call.name, call.parsed or {}, call.id))
        elif isinstance(record, Mark | Unknown) or not items:  # else the events tell all of it
            items.insert(0, record)
        for item in items:
            self.entries.append(Entry(len(self.entries), item))


class Subscription(AsyncIterator[Entry]):
    """The entries that one reader wants: an async iterator that goes on until `close()`.

    `names` are channels and kinds. If there is a `handler`, it gets each entry instead.
    """

    def __init__(
        self,
        agent: Loop,
        names: Collection[str],
        since: int | None = None,
        handler: Callable[[Entry], None] | None = None,
    ) -> None:
        channels = {*get_args(Channel)}
        classes = (UserMessage, *get_args(Event), *Mark.__subclasses__())
        known = channels.union(each.__name__ for each in classes)
        for name in names:
            if name not in known:
                raise ValueError(f"there is no {name!r}: choose from {', '.join(sorted(known))}")
        self._agent = agent
        self._names = {*names} or channels
        self._handler = handler
        self._log = agent.fold(Entries)
        self._next = len(self._log.entries)
        if since is not None:  # a number beyond the end is of another history
            self._next = since + 1 if since < self._next else 0
        self._passing = deque[Entry](maxlen=1000)  # of events that leave no record
        self._news = asyncio.Event()
        self._telling = RLock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # of the reader
        agent.listeners = [*agent.listeners, self]

    def __call__(self, event: Event | None = None) -> None:
        """Let the reader or the handler have an event, and what records are new. Thread-safe."""
        if isinstance(event, Delta | UNRECORDED):
            self._passing.append(Entry(len(self._agent.fold(Entries).entries) - 1, event))
        self.wake()
        with self._telling:  # threads may tell of entries at the same time
            # `close` may take the handler off at any time, also from another thread
            while (handler := self._handler) and (entry := self._take()):
                handler(entry)

    def wake(self) -> None:
        """Let a reader that waits look for entries. Thread-safe."""
        if self._loop:
            with suppress(RuntimeError):  # the reader's event loop is closed
                self._loop.call_soon_threadsafe(self._news.set)

    def _take(self) -> Entry | None:
        """Return the next entry that is wanted, or None."""
        log = self._agent.fold(Entries)
        if log is not self._log:  # another history: its entries begin anew
            self._log, self._next = log, 0
        while True:
            if self._passing and self._passing[0].number < self._next:
                entry = self._passing.popleft()
            elif self._next < len(log.entries):
                entry = log.entries[self._next]
                self._next += 1
            else:
                return None
            if self._names & {entry.channel, entry.kind}:
                return entry

    def close(self) -> None:
        """Call the handler no more. A reader gets what the log holds by then, and then the end."""
        self._agent.listeners = [each for each in self._agent.listeners if each is not self]
        self._handler = None
        self._closed = True
        self.wake()

    async def __anext__(self) -> Entry:
        self._loop = asyncio.get_running_loop()
        while not (entry := self._take()):
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return entry


class Channels(Loop):
    """Gives each subscriber the entries that it asks for; their numbers survive a restart."""

    def record(self, record: Record) -> None:
        super().record(record)
        for each in self.listeners:
            if isinstance(each, Subscription):
                each.wake()
                # a handler later, as a mixin to the left may still have to write the record
                with suppress(RuntimeError):  # no event loop runs here: the next event tells of it
                    asyncio.get_running_loop().call_soon(each)

    def subscribe(self, *names: str, since: int | None = None) -> Subscription:
        """Return an async iterator over the entries of these channels or kinds, or over all.

        It begins with what happens from now on, in this run and the next. With `since`, it begins
        with what the log holds behind that number, or with all of the log if there is no such
        number: then the number is of another history. ValueError: there is no such channel or kind.
        """
        return Subscription(self, names, since)

    def on(self, name: str, handler: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `handler` with each entry of a kind, such as "ToolResultEvent", or of a channel.

        Return a function that unsubscribes. The handler is a plain function: async code reads
        `subscribe(name)` instead. An error of the handler is logged, and stops nothing. ValueError:
        there is no such channel or kind.
        """
        return Subscription(self, (name,), handler=handler).close

    def fork(self, at: int | None = None, **settings: Any) -> Self:
        """Fork as `Loop` does; subscriptions stay with this agent."""
        twin = super().fork(at, **settings)
        twin.listeners = [each for each in twin.listeners if not isinstance(each, Subscription)]
        return twin
