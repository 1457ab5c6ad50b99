"""An agent is a for-loop: `Loop.run` is the loop, `ChatModel` the interface of the model.

Copy with: model.py, run.py, settings.py and their imports.

Start with `Loop.run`. It works through seven small methods, the seams: `toolset`, `context`,
`call_model`, `call_tools`, `call_tool`, `finish` and `record`. A mixin overrides some of them and
calls `super()`. In `class A(DoneTool, Compaction, Loop)`, a request or a call passes through the
classes from left to right, and its result comes back from right to left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Annotated, Any, Literal, Self

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, SkipValidation

from .content import ends_run, error_result, to_result
from .depends import Overrides, current_agent, current_call
from .errors import AgentBusy, RunStopped, result_of_calls
from .events import Event, EventQueue, Listener, ToolsChangedEvent, events_of, notify
from .messages import (
    AssistantMessage,
    Extra,
    Message,
    MessageView,
    Prompt,
    Result,
    Stop,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    UserOrigin,
)
from .model import ChatModel, Request
from .run import EventStream, Run, only_run
from .settings import Settings, copy_settings
from .tools import Tool, by_name, find_tool
from .transcript import (
    AnyFold,
    Asks,
    Awaits,
    Conversation,
    Log,
    Record,
    ToolStart,
    failed_attempts,
    forked,
    is_complete,
    result_of,
    usage_of,
    with_unique_ids,
)
from .waiting import gather_bounded, raise_if_cancelled, run_blocking, wait_for


class Loop(Settings):
    """A for-loop around a chat model and its tools: the smallest agent.

    llm: the chat model.
    tools: what the model may call: functions with `@tool`.
    system_prompt: the instructions at the beginning of every request, or a function that gets the
        agent and returns them. It's called once per run, so that all requests of a run share the
        prefix.
    max_iterations: how many turns (model calls) a run may take.
    dependency_overrides: `{dependency: replacement}`, mainly for tests.
    max_parallel: how many calls may run at the same time.
    max_result_chars: how long a tool result may be; the middle of a longer one is left out.
    tool_timeout: how many seconds a call may take, unless its tool has its own `timeout`, such as
        `math.inf`.
    cancel_timeout: how many seconds to wait for a tool that was cancelled.
    on_tool_error: "return" shows a tool's exception to the model; "raise" ends the run with it,
        unless it's a ToolError.
    listeners: functions that are called with every event.
    """

    __slots__ = ("active_run", "log")  # besides __dict__, so that a fork stays below 1 KB

    llm: ChatModel
    tools: Sequence[Annotated[Tool, SkipValidation]] = []  # checked by `by_name`
    system_prompt: str | Callable[[Any], str] = ""
    max_iterations: PositiveInt = 200
    dependency_overrides: Overrides | None = None
    max_parallel: PositiveInt = 16
    max_result_chars: int = 100_000
    tool_timeout: PositiveFloat | None = None
    cancel_timeout: NonNegativeFloat = 5.0
    on_tool_error: Literal["return", "raise"] = "return"
    listeners: Sequence[Listener] = ()

    _turn_tools = tuple[Tool, ...]()  # of this turn; an annotation would give each fork its own

    def __post_init__(self) -> None:
        super().__post_init__()
        by_name(self.tools)
        self.active_run: Run | None = None
        self.log = Log(self.load_records())

    # ---- the loop

    async def run(
        self, prompt: Prompt = None, *, extra: Extra = None, events: EventQueue | None = None
    ) -> Result:
        """Work on a prompt until the model answers.

        If there's no prompt, continue: run the calls that haven't started or may start again, and
        send the next request. After an error, `run()` tries the failed request again.

        extra: data for the RunStart in the log.
        events: a queue that receives the events. Call `events.task_done()` after each one: a tool
            starts only when its ToolCallEvent is done.

        Raises the model's errors; a tool's with `on_tool_error="raise"`; AgentBusy during another
        run; and ValueError for an empty prompt, or if there's no prompt and nothing to continue.
        """
        async with only_run(self, prompt, extra, events) as run:
            try:
                left = await run.resume()  # the calls of an earlier run
                if left and (result := await self.finish(left)):
                    return run.end(result)
                for _ in range(self.max_iterations):
                    tools = self.turn_tools()
                    reply = await self.call_model(Request(await self.context(), tools))
                    self.add(reply)
                    run.raise_if_cancelled()
                    if reply.tool_calls and is_complete(reply):
                        result = await self.call_tools(reply.tool_calls)
                    else:
                        result = result_of(reply)
                    if result and (result := await self.finish(result)):
                        return run.end(result)
                raise Stop("max_iterations")
            except Stop as stop:
                return await run.finish_now(stop.result)
            except (Exception, asyncio.CancelledError) as error:
                return run.end_if_interrupted(error)

    async def query(self, prompt: Prompt) -> str:
        """Run a prompt and return its answer, or a summary if the run is out of turns.

        Raises RunStopped if the run ends in any other way.
        """
        result = await self.run(prompt)
        if not result.answered:
            raise RunStopped(result)
        return result.text

    def query_stream(self, prompt: Prompt = None) -> EventStream:
        """Run a prompt, and iterate over its events. `stream.result` is the Result at the end.

            async with agent.query_stream(prompt) as stream:
                async for event in stream: ...
            stream.result.stop_reason           # `result` is None until the run has ended

        Leave the block to cancel the run; if you don't use `async with`, call `stream.aclose()`. A
        tool starts only when you ask for the event after its ToolCallEvent, so if you leave at that
        event, the tool doesn't start.
        """
        return EventStream(lambda queue: self.run(prompt, events=queue), 2 * self.cancel_timeout)

    def run_sync(self, prompt: Prompt = None) -> Result:
        """Run a prompt in a script. Raises RuntimeError in async code: use `await run(...)`."""
        return run_blocking(lambda: self.run(prompt), self.cancel_timeout)

    # ---- the seams, for mixins to override

    async def context(self) -> list[Message]:
        """The messages of the next request: equal ones if you ask twice. Nothing is sent."""
        text = self.system_text()
        return [SystemMessage(text), *self.messages] if text else [*self.messages]

    def toolset(self) -> Sequence[Tool]:
        """The tools to offer to the model in this turn."""
        return self.tools

    async def call_model(self, request: Request) -> AssistantMessage:
        """Send one request and return the reply. The reply of a turn is streamed as events."""
        llm = request.model or self.llm
        on_delta = self.emit if request.purpose == "turn" and self.listened else None
        start = time.perf_counter()
        try:
            reply = await llm.ainvoke(
                request.messages, request.tools, tool_choice=request.tool_choice, on_delta=on_delta
            )
        except BaseException as error:
            self.add(*failed_attempts(error))
            raise
        self.add(*failed_attempts(reply))
        seconds = round(time.perf_counter() - start, 3)
        reply = replace(reply, model=reply.model or llm.model, seconds=seconds, attempts=())
        return with_unique_ids(reply, self.conversation.states.keys(), new=True)

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        """Run the calls of a turn, at the same time if their tools allow that.

        Returns a Result if a done tool ended the run. Every call gets a result unless it's
        cancelled, never starts, or waits for something from outside. If several calls raise, one
        exception wins once all have ended: an error over a Stop, a Stop over a TaskComplete, and
        among equals the first call's.
        """
        run = self.active_run
        outcomes = list[BaseException | None]()
        if run is None:  # a tool that ignored its cancellation makes a call after the run
            return None
        for overlap, group in groupby(calls, self._may_overlap):
            at_once = self.max_parallel if overlap else 1
            outcomes += await gather_bounded(
                run.perform, group, at_once=at_once, grace=self.cancel_timeout
            )
        return result_of_calls(outcomes)

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        """Run one call and return its result. Exceptions become error results.

        Raises what ends the run: a Stop, a cancellation, and with `on_tool_error="raise"` any error
        but a ToolError.
        """
        injected = {current_agent: lambda: self, current_call: lambda: call}
        try:
            tool = self.tool(call)
            arguments = tool.validate(call.arguments)
            raise_if_cancelled()  # a tool or a mixin may have suppressed a CancelledError
            awaited = self.conversation.state_of(call).awaits
            if tool.external and awaited is None:
                self.record(awaited := Awaits(call.id))
            if awaited:
                raise Stop(awaited.stop_reason)
            self.record(ToolStart(call.id))
            work = tool.execute(arguments, injected | dict(self.dependency_overrides or {}))
            timeout = tool.timeout or self.tool_timeout
            value = await wait_for(work, timeout, grace=self.cancel_timeout)
            return to_result(call, value, self.max_result_chars, tool.ephemeral)
        except Asks as stop:
            self.record(stop.entry(call))
            raise Stop(stop.reason, stop.text) from stop  # a tool around it would seem to ask, too
        except BaseException as error:
            if ends_run(error, self.on_tool_error):
                raise
            return error_result(call, error)

    async def finish(self, result: Result) -> Result | None:
        """Return the result to end the run, or None to go on.

        It gets every answer, done result and cut-off reply. It also gets the result of a Stop, but
        then the run ends whatever you return.
        """
        return result

    def record(self, record: Record) -> None:
        """Append to the log. This emits no event, and can't be cancelled: it isn't async."""
        self.log.append(record)

    # ---- what follows from the log

    @property
    def messages(self) -> MessageView:
        """What the model sees, except the system prompt. Every call has a result."""
        with self.log.lock:
            return MessageView(self.conversation.messages)

    @property
    def conversation(self) -> Conversation:
        """The fold with the messages, the states of calls, and the requests."""
        return self.log.fold(Conversation)

    @property
    def usage(self) -> Usage:
        """The tokens of all requests, summaries included. A fork counts only its own."""
        return usage_of(self.conversation.requests)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a decision, a result or an answer, in call order.

        They survive a restart. The next prompt closes them, and they don't run.
        """
        return tuple(state.presented for state in self.conversation.waiting)

    def fold(self, kind: Callable[..., AnyFold], *settings: Hashable) -> AnyFold:
        """The fold `kind(log, *settings)`, which has seen all records: see `Log.fold`."""
        return self.log.fold(kind, *settings)

    # ---- what tools, mixins and programs use

    def fork(
        self, at: int | None = None, *, cls: type[Self] | None = None, **settings: Any
    ) -> Self:
        """Copy the agent, with the records before index `at`, by default all. The two are
        independent of each other.

        The copy has the same settings, except those that you pass; other attributes start anew. An
        agent with an empty log is a template: fork it once per request.

        cls: a subclass of this agent's class for the copy.
        """
        twin = copy_settings(self, cls or type(self), settings)
        twin.log = Log(forked(self.log[:at]))
        return twin

    def refuse_if_busy(self) -> None:
        """Raise AgentBusy during a run."""
        if self.running:
            raise AgentBusy

    @property
    def running(self) -> bool:
        """Whether a run is in progress. If its event loop was closed, the run has ended."""
        return bool(self.active_run and self.active_run.is_alive)

    @property
    def listened(self) -> bool:
        """Whether anybody listens to the events, or reads them."""
        return bool(self.listeners or (self.active_run and self.active_run.events))

    def add(self, *records: Record) -> None:
        """Append records, and emit their events."""
        for record in records:
            self.record(record)
            for event in events_of(record):
                self.emit(event)

    def add_note(self, text: str, origin: UserOrigin = "note") -> None:
        """Add a user message that the user doesn't see."""
        self.add(UserMessage(text, origin))

    def emit(self, event: Event) -> None:
        """Pass an event to the listeners and to the reader. A listener's exception is logged."""
        notify(self.listeners, event)
        if self.active_run and self.active_run.events:
            self.active_run.events.put_nowait(event)

    def tool(self, call: ToolCall) -> Tool:
        """Find a call's tool among this turn's. Raises ToolError if there's none of that name."""
        return find_tool(call, self._turn_tools)

    def system_text(self) -> str:
        """The text of the system prompt, which stays the same during a run."""
        if isinstance(self.system_prompt, str):
            return self.system_prompt
        run = self.active_run
        return run.system_text if run and run.is_alive else self.system_prompt(self)

    def load_records(self) -> Iterable[Record]:
        """The records that a new agent starts with: those of the file, in a `Session`."""
        return ()

    async def wait_for_cancelled_run(self) -> None:
        """Wait until a cancelled run has ended. Raises AgentBusy if there still is a run."""
        if self.active_run:
            await self.active_run.wait_if_cancelled(2 * self.cancel_timeout)
        self.refuse_if_busy()

    def turn_tools(self) -> Sequence[Tool]:
        """Ask `toolset` for this turn's tools, in which `self.tool(call)` looks up its calls."""
        before, self._turn_tools = self._turn_tools, tuple(self.toolset())
        names = by_name(self._turn_tools)
        if before and before != self._turn_tools:
            self.emit(ToolsChangedEvent([*names]))
        return self._turn_tools

    def _may_overlap(self, call: ToolCall) -> bool:
        return all(tool.parallel for tool in self._turn_tools if tool.name == call.name)
