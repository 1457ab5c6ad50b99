"""Channels: followers of a log that reconnect at a number and miss nothing, also after a restart.

Use channels between an agent and its readers, for example a progress page, a reviewer of calls, a
monitor. `agent.follow("progress", since=41)` iterates over numbered entries, starting with 42.
An entry is an event, or a record without an event, such as a prompt or a `RunStart`. Entries are
computed from the log, so a replay equals the live entries, and a number stays valid in a new
process of the same session. Unrecorded events, such as deltas, have the number of the previous
entry: only followers at the time get them, and a slow follower may miss some.

`python channels.py serve` serves a page at localhost:8000 that follows a conversation over
server-sent events (`pip install fastapi uvicorn`). A browser's `EventSource` sends the last number
when it reconnects, so the page misses nothing after a lost connection or a restart of the server.
"""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import RLock
from typing import Annotated, Any, Literal, Self, get_args

from pydantic_core import to_json

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionEvent,
    HiddenUserMessageEvent,
    Loop,
    Mark,
    Message,
    Record,
    ScriptedModel,
    Session,
    StepStartEvent,
    ToolCall,
    ToolCallEvent,
    ToolMessage,
    UsageEvent,
    UserMessage,
    call,
    tool,
)
from agentloop.common.review import Ask, Decision
from agentloop.events import (
    Delta,
    Event,
    OverBudgetEvent,
    PruneEvent,
    SubAgentEvent,
    ToolsChangedEvent,
    events_of,
)
from agentloop.messages import Unknown
from agentloop.transcript import Fold, Records, RunStart, is_complete

Channel = Literal["progress", "control", "monitor"]
UNRECORDED = CompactionEvent | OverBudgetEvent | PruneEvent | SubAgentEvent | ToolsChangedEvent


@dataclass(frozen=True, slots=True)
class Entry:
    """A numbered event or record."""

    number: int
    item: Event | Record

    @property
    def kind(self) -> str:
        """Return the class name of the item."""
        return type(self.item).__name__

    @property
    def channel(self) -> Channel:
        """Return "control" for approval requests and decisions, "progress" for the conversation.

        The channel of other items is "monitor".
        """
        if isinstance(self.item, Ask | Decision):
            return "control"
        if isinstance(self.item, Mark | Unknown | UsageEvent | HiddenUserMessageEvent | UNRECORDED):
            return "monitor"
        return "progress"


class Entries(Fold):
    """The entries of a log."""

    def __init__(self, log: Records = ()) -> None:
        super().__init__(log)
        self.steps = 0
        self.entries: list[Entry] = []

    def take(self, at: int, record: Any) -> None:
        items: list[Any] = [*events_of(record)]
        if isinstance(record, RunStart):
            self.steps = 0
        if isinstance(record, AssistantMessage):
            for tool_call in record.tool_calls if is_complete(record) else ():
                self.steps += 1
                items.append(StepStartEvent(tool_call.id, tool_call.name, self.steps))
                items.append(ToolCallEvent(tool_call.name, tool_call.parsed or {}, tool_call.id))
        elif isinstance(record, Mark | Unknown) or not items:  # events repeat any other record
            items.insert(0, record)
        for item in items:
            self.entries.append(Entry(len(self.entries), item))


def subclasses(cls: type) -> list[type]:
    """Return the subclasses of a class, and theirs."""
    found: list[type] = cls.__subclasses__()
    return [*found, *(each for sub in found for each in subclasses(sub))]


class Follower(AsyncIterator[Entry]):
    """An async iterator over the entries of some channels or kinds, until `close()`.

    names: channels and class names of items; empty for all.
    since: the number of the last entry received; None starts with the next entry.
    handler: a function that receives each entry in place of the iterator.
    """

    def __init__(
        self,
        agent: Loop,
        names: Collection[str],
        since: int | None = None,
        handler: Callable[[Entry], None] | None = None,
    ) -> None:
        channels = {*get_args(Channel)}
        classes = (UserMessage, *get_args(Event), *subclasses(Mark))
        valid_names = channels.union(cls.__name__ for cls in classes)
        for name in names:
            if name not in valid_names:
                raise ValueError(
                    f"unknown channel or kind {name!r}: use {', '.join(sorted(valid_names))}"
                )
        self._agent = agent
        self._names = {*names} or channels
        self._handler = handler
        self._log = agent.fold(Entries)
        self._next = len(self._log.entries)
        if since is not None:  # a number beyond the end belongs to another history
            self._next = since + 1 if since < self._next else 0
        self._unrecorded = deque[Entry](maxlen=1000)
        self._news = asyncio.Event()
        self._handling = RLock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop of the iterator
        agent.listeners = [*agent.listeners, self]

    def __call__(self, event: Event | None = None) -> None:
        """Take an event, and pass new entries to the iterator or the handler. Thread-safe."""
        if isinstance(event, Delta | UNRECORDED):
            self._unrecorded.append(Entry(len(self._agent.fold(Entries).entries) - 1, event))
        self.wake()
        with self._handling:
            # `close` may remove the handler at any time, also from another thread
            while (handler := self._handler) and (entry := self._take()):
                handler(entry)

    def wake(self) -> None:
        """Wake up the iterator if it waits for an entry. Thread-safe."""
        if self._loop:
            with suppress(RuntimeError):  # the event loop of the iterator is closed
                self._loop.call_soon_threadsafe(self._news.set)

    def _take(self) -> Entry | None:
        """Return the next matching entry, or None."""
        log = self._agent.fold(Entries)
        if log is not self._log:  # the history was replaced: its numbers start at 0
            self._log, self._next = log, 0
        while True:
            if self._unrecorded and self._unrecorded[0].number < self._next:
                entry = self._unrecorded.popleft()
            elif self._next < len(log.entries):
                entry = log.entries[self._next]
                self._next += 1
            else:
                return None
            if self._names & {entry.channel, entry.kind}:
                return entry

    def close(self) -> None:
        """Stop calling the handler; the iterator ends after the entries of the present log."""
        self._agent.listeners = [other for other in self._agent.listeners if other is not self]
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
    """Adds `follow` and `on`. The numbers of entries survive a restart of the process."""

    def record(self, record: Record) -> None:
        super().record(record)
        for listener in self.listeners:
            if isinstance(listener, Follower):
                listener.wake()
                # handlers run later, because a mixin before this one may still write the record
                with suppress(RuntimeError):  # without an event loop, the next event runs them
                    asyncio.get_running_loop().call_soon(listener)

    def follow(self, *names: str, since: int | None = None) -> Follower:
        """Return an async iterator over the entries of channels or kinds, by default all entries.

        Iteration starts with the next entry, or after entry number `since`; -1 is the beginning. A
        number beyond the end belongs to another history, so iteration restarts at the beginning.
        It continues through later runs, until `close()`. Raises ValueError for unknown names.
        """
        return Follower(self, names, since)

    def on(self, name: str, handler: Callable[[Entry], None]) -> Callable[[], None]:
        """Call a plain function with each entry of a channel or a kind, such as "ToolResultEvent".

        Return a function that removes the handler. An exception of the handler is logged, and the
        run continues. Raises ValueError for an unknown name.
        """
        return Follower(self, (name,), handler=handler).close

    def fork(self, at: int | None = None, **settings: Any) -> Self:
        """Fork as `Loop` does; followers stay with this agent."""
        twin = super().fork(at, **settings)
        twin.listeners = [other for other in twin.listeners if not isinstance(other, Follower)]
        return twin


# ---- over HTTP

PAGE = """<!doctype html><p id=status><p id=text>
<script>
const seen = new EventSource("/events?channel=progress")
const show = (id, text) => { document.getElementById(id).textContent = text }
seen.addEventListener("ToolCallEvent", e => show("status", JSON.parse(e.data).tool))
seen.addEventListener("TextEvent", e => show("text", JSON.parse(e.data).content))
seen.addEventListener("FinalResponseEvent", e => show("status", "done"))
fetch("/runs", {method: "POST", body: JSON.stringify("How were sales?"),
                headers: {"content-type": "application/json"}})
</script>"""


def application(agent: Channels) -> Any:
    """Make a FastAPI application for one conversation: a page, runs, and their events."""
    from fastapi import Body, FastAPI, Header
    from fastapi.responses import HTMLResponse, StreamingResponse

    app = FastAPI()

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(PAGE)

    @app.post("/runs")
    async def run(prompt: Annotated[str, Body()]) -> str:
        return (await agent.run(prompt)).stop_reason

    @app.get("/events")
    async def events(
        channel: Channel = "progress", last_event_id: Annotated[int, Header()] = -1
    ) -> StreamingResponse:
        lines = server_sent(agent, channel, last_event_id)
        return StreamingResponse(lines, media_type="text/event-stream")

    return app


async def server_sent(agent: Channels, channel: Channel, since: int) -> AsyncGenerator[bytes]:
    """Yield the entries after number `since`, then new ones, until the client disconnects."""
    with closing(agent.follow(channel, since=since)) as entries:
        async for entry in entries:
            data = to_json(entry.item, fallback=repr)
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.number, entry.kind.encode(), data)


class Served(Channels, Session, Agent):
    """With `session="name"`, the conversation survives restarts."""


@tool("Sales by month")
def sales(year: int) -> dict[str, int]:
    return {"January": year - 2000, "February": 31}


async def main(agent: Served) -> None:
    agent.on("monitor", lambda entry: print("monitor:", entry.number, entry.kind))
    await agent.run("How were sales?")
    with closing(agent.follow("progress", since=4)) as entries:  # another reader, later
        async for entry in entries:
            print("progress:", entry.number, entry.kind)
            if entry.kind == "FinalResponseEvent":
                break


def analyst(messages: Sequence[Message], tools: object) -> ToolCall | str:
    """Simulate a model for any number of prompts."""
    if isinstance(messages[-1], ToolMessage):
        return "More in February."
    return call("sales", year=2026)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        import uvicorn

        agent = Served(llm=ScriptedModel(analyst), tools=[sales], session="sales")
        uvicorn.run(application(agent))
    else:
        asyncio.run(main(Served(llm=ScriptedModel(analyst), tools=[sales])))
