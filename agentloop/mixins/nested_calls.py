"""Nested calls: a tool calls other tools of its agent with `agent.call`.

Copy with: the core, common/nested.py.

    @tool(idempotent=True)
    async def report(city: str, agent: Annotated[NestedCalls, Depends(current_agent)]) -> str:
        return f"In {city}: {await agent.call(get_weather, city=city)}"
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_core import from_json, to_json

from ..common.nested import InnerCall, InnerResult
from ..errors import ToolError
from ..events import events_of
from ..loop import Loop
from ..messages import (
    Result,
    TaskComplete,
    ToolCall,
    ToolMessage,
)
from ..tools import Tool, find_tool
from ..transcript import CallState, Record, calls_to_resume, placeholder_result
from ..waiting import cancel_and_wait, capture, was_cancelled

Outcome = ToolMessage | BaseException

MAX_DEPTH = 8  # maximum levels of nested calls


class NestedCalls(Loop):
    """Lets tools call other tools of their agent."""

    async def call(self, tool_or_name: Tool | str, /, **arguments: Any) -> Any:
        """Call another tool of this agent from a tool, and return its result.

        It passes the same gates and limits as the model's calls, and gets the same dependencies.
        It's in the log, but the model doesn't see it. You get text or parts; another value comes
        back as its JSON data, unless it's longer than `max_result_chars`: then it's text, and its
        middle is left out. To run calls at the same time, use `asyncio.gather`.

        If the call needs approval or an answer from outside, the run ends, and `pending` lists the
        call. Once it's decided or answered, `run()` runs your tool again if it's idempotent: nested
        calls that were done return their recorded results and don't run again. If it isn't, `run()`
        runs the nested call only, and the model reads that the outcome of your tool is unknown.

        Raises ToolError if the call fails, is denied or doesn't run, and RuntimeError anywhere but
        in a tool of this agent.
        """
        caller = current_caller.get()
        if caller is None or caller.agent is not self:
            raise RuntimeError("agent.call() only works inside a tool that this agent runs")
        name = tool_or_name if isinstance(tool_or_name, str) else tool_or_name.name
        tool = find_tool(name, self._turn_tools)
        return await caller.call(tool, to_json(arguments).decode())

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        async with Caller(self, call):
            return await super().call_tool(call)

    def add(self, *records: Record) -> None:
        super().add(*records)
        for record in records:
            for event in events_of(record.result) if isinstance(record, InnerResult) else ():
                self.emit(event)


@dataclass(eq=False)
class Caller:
    """One run of a tool, with the calls that it makes.

    When a tool runs again, each call that it makes is matched with one that it made before: the
    first of the same name and arguments that isn't taken yet. If that call was done, its recorded
    result is returned. If it had started, it runs again only if its tool is idempotent.

    outer: the call that runs the tool.
    tasks: the calls that are running.
    error: the first exception that ends the run.
    has_ended: whether the tool has returned. What it left behind, such as another branch of an
        `asyncio.gather` that raised, makes no more calls.
    """

    agent: Loop
    outer: ToolCall
    tasks: set[asyncio.Task[Outcome]] = field(default_factory=set[asyncio.Task[Outcome]])
    error: BaseException | None = None
    has_ended: bool = False

    async def call(self, tool: Tool, arguments: str) -> Any:
        """Run a nested call and return its result.

        Raises ToolError if the result is an error, and what ends the run, such as Stop.
        """
        parent = self.agent.conversation.states.get(self.outer.id)
        if self.has_ended or parent is None or parent.result:
            raise ToolError(
                f"{tool.name} can't be called: the call {self.outer.id!r} isn't running."
            )
        call = self._earlier_call(tool.name, arguments)
        call = call or self._new_call(parent, tool.name, arguments)
        task = asyncio.create_task(self._run(call, tool))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        result = await task
        if isinstance(result, BaseException):
            while self.tasks:  # an approval request, for example, doesn't stop the other calls
                await asyncio.wait(self.tasks)
            raise result
        if result.is_error:  # the name, because the tool that called it may show this as its own
            raise ToolError(f"{tool.name}: {result.text}")
        if result.is_json:
            with suppress(ValueError):  # for example a date, or truncated text
                return from_json(result.text or "null")
        return result.content

    async def __aenter__(self) -> None:
        current_caller.set(self)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Cancel the calls that the tool didn't wait for, and raise what ends the run.

        If a nested call has raised a Stop for example, the run ends even if the tool caught it.
        """
        self.has_ended = True
        if self.tasks and await cancel_and_wait(self.tasks, self.agent.cancel_timeout):
            raise asyncio.CancelledError
        if self.error and not (error and was_cancelled(error)):
            raise self.error

    @cached_property  # most tools make no calls
    def _earlier(self) -> list[CallState]:
        """The calls that earlier runs of the tool made, as far as they aren't matched yet."""
        return [*self.agent.conversation.state_of(self.outer).inner]

    @cached_property
    def _slots(self) -> dict[bool, asyncio.Semaphore]:
        """How many calls may run at once: many of parallel tools (True), one of others."""
        return {True: asyncio.Semaphore(self.agent.max_parallel), False: asyncio.Semaphore(1)}

    def _earlier_call(self, name: str, arguments: str) -> ToolCall | None:
        """Find the same call among those that earlier runs made, and take it out."""
        for state in self._earlier:
            made = state.newest(InnerCall)  # without the changes of a reviewer
            if made and (made.name, made.arguments) == (name, arguments):
                self._earlier.remove(state)
                return state.call
        return None

    def _new_call(self, parent: CallState, name: str, arguments: str) -> ToolCall:
        """Record a nested call. Raises ToolError if calls are nested deeper than `MAX_DEPTH`."""
        states = self.agent.conversation.states
        depth, call = 1, parent.call
        while call.parent_id:
            depth, call = depth + 1, states[call.parent_id].call
        if depth > MAX_DEPTH:
            raise ToolError(f"{name} can't be called: the limit is {MAX_DEPTH} levels of calls.")
        call_id = f"{self.outer.id}.{len(parent.inner) + 1}"
        while call_id in states:
            call_id += "_"
        record = InnerCall(call_id, self.outer.id, name, arguments)
        self.agent.record(record)
        return record.call

    async def _run(self, call: ToolCall, tool: Tool) -> Outcome:
        """Run a nested call if it may run, or else those inside it that may.

        Returns its result, or what ends the run.
        """
        async with self._slots[tool.parallel]:
            state = self.agent.conversation.states[call.id]
            left = [] if state.result or state.decided else [state]
            calls, _ = calls_to_resume(left, [tool.name] if tool.resumes else [])
            if calls:
                ended = await capture(self.agent.call_tools(calls))
                if isinstance(ended, Result):
                    ended = TaskComplete(ended.text, ended.value)
                if ended:
                    self.error = self.error or ended
                    return ended
        state = self.agent.conversation.states[call.id]
        if state.result is None and (run := self.agent.active_run):
            await run.close(state)
        return state.result or placeholder_result(state)


current_caller = ContextVar[Caller | None]("current_caller", default=None)
