"""An agent is a for-loop: `Loop.run` is that loop, `ChatModel` is what it calls.

Copy with: runs.py, tools.py and what they name.

Read `Loop.run` first. It calls seven small methods, the seams. A mixin overrides one or two of
them and calls `super()`. A request or a call enters at the left of a class line and goes right, to
the base. A view is built at the base and handed back to the left.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Annotated, Any, Literal, Protocol, TypeGuard, runtime_checkable

from pydantic import PositiveInt, SkipValidation

from .depends import current_agent, current_call
from .errors import ToolError
from .events import (
    EventQueue,
    OnDelta,
    StepStartEvent,
    ToolCallEvent,
    ToolsChangedEvent,
    failed_attempt,
)
from .messages import (
    AssistantMessage,
    Extra,
    Message,
    Record,
    Result,
    Stop,
    SystemMessage,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolStart,
    UserMessage,
    frozen,
)
from .results import as_content, describe_error
from .runs import Prompt, Runs
from .tools import Tool, by_name, find_tool
from .transcript import WHOLE, call_states, newest_run, open_states, sealed, with_unique_ids
from .waiting import settle, was_cancelled, within

logger = logging.getLogger("agentloop")

OUT_OF_TURNS = (
    "You have reached the limit of turns and cannot call tools any more. "
    "Say what you have done, what you found, and what is still missing."
)
CUT_OFF = "Not run: the reply ended before it was complete. Do it in smaller pieces."
EMPTY_REPLY = "Your last reply was empty. Answer, or call a tool."
MAX_NUDGES = 3
AGAIN = {"length": 3, "pause": 10}  # how many such replies in a row a run may have
STOPS = {  # other stop reasons of a reply become "unknown:..."
    "refused": "refused",
    "context_overflow": "context_overflow",
    "length": "limit:length",
    "pause": "no_progress",
}


@runtime_checkable
class ChatModel(Protocol):
    """Anything that answers messages. With `on_delta` it streams too, and returns the same."""

    @property
    def model(self) -> str: ...

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage: ...


@frozen
class Request:
    """One model request. `purpose` is "step" for the loop's own, another word for side requests.

    `model` answers it instead of the agent's own.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "auto"
    purpose: str = "step"
    model: ChatModel | None = None


class Loop(Runs):
    """A for-loop around a chat model and its tools: the smallest agent.

    llm: the model that answers.
    tools: what it may call, each made with `@tool`.
    system_prompt: sent first with every request.
    max_iterations: how many turns (model calls) a run may take.
    tool_choice: for a run's first request; "auto" after it, so that a forced tool cannot loop.
    dependency_overrides: `{dependency: replacement}`, for tests above all.
    max_parallel: how many calls of one turn run side by side.
    max_result_chars: longer tool results are cut to their head and tail.
    on_tool_error: "return" lets the model read an exception; "raise" ends the run with it.
    """

    llm: ChatModel
    tools: Sequence[Annotated[Tool, SkipValidation]] = ()  # by_name says more
    system_prompt: str = ""
    max_iterations: PositiveInt = 200
    tool_choice: ToolChoice = "auto"
    dependency_overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None
    max_parallel: PositiveInt = 16
    max_result_chars: int = 100_000
    on_tool_error: Literal["return", "raise"] = "return"

    def __post_init__(self) -> None:
        super().__post_init__()
        by_name(self.tools)
        self._offered: Sequence[Tool] = ()
        self._steps = 0

    # ---- the loop

    async def run(
        self, prompt: Prompt = None, *, extra: Extra = None, events: EventQueue | None = None
    ) -> Result:
        """Work on a prompt until there is an answer; without one, go on where the last run ended.

        Raises what the model raises, AgentBusy if a run is going on, and ValueError if there is
        nothing to work on. After an error, `run()` tries again. `extra` is kept in the RunStart.
        `events` gets the events; no tool starts before its ToolCallEvent was taken from it.
        """
        async with self._running(prompt, extra, events) as run:
            await self._take_up_open_calls()
            tool_choice = self.tool_choice
            for _ in range(self.max_iterations):
                tools = self._offer()
                reply = await self.call_model(Request(await self.context(), tools, tool_choice))
                self._take(reply)
                if reply.stop_reason not in WHOLE:
                    result = self._cut_short(reply)
                elif reply.tool_calls:
                    result = await self.call_tools(reply.tool_calls)
                else:
                    result = Result(reply.text)
                if result and (result := await self.finish(result)):
                    break
                tool_choice = "auto"  # a forced tool is forced once
            else:
                raise Stop("max_iterations", await self._sum_up())
            run.result = result
        return run.result  # a Stop or an interrupt that ended the block has set it, too

    # ---- the seams, for mixins to override

    async def context(self) -> list[Message]:
        """What the model will see. Makes no request, and twice in a row gives the same."""
        system = [SystemMessage(self.system_prompt)] if self.system_prompt else []
        return [*system, *self.messages]

    def toolset(self) -> Sequence[Tool]:
        """The tools on offer in this turn."""
        return self.tools

    async def call_model(self, request: Request) -> AssistantMessage:
        """The model's reply to one request. Streams a step if somebody listens."""
        llm, start = request.model or self.llm, time.perf_counter()
        streams = request.purpose == "step" and self.listened
        token = failed_attempt.set(self.add)
        try:
            reply = await llm.ainvoke(
                request.messages,
                request.tools,
                tool_choice=request.tool_choice,
                on_delta=self.emit if streams else None,
            )
        finally:
            failed_attempt.reset(token)
        seconds = round(time.perf_counter() - start, 3)
        reply = replace(reply, model=reply.model or llm.model, seconds=seconds)
        seen = {c.id for r in self.log if isinstance(r, AssistantMessage) for c in r.tool_calls}
        return with_unique_ids(reply, seen, new=True)

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        """Run one turn's calls side by side, all answered; a Result if a done tool ended the run.

        Whatever a call raises waits until its siblings have settled. Then a crash outranks
        another Stop, which outranks done; among equals the first call's wins.
        """
        raised: list[BaseException] = []
        for overlap, group in groupby(calls, self._may_overlap):
            at_once = self.max_parallel if overlap else 1
            outcomes = await settle(self._run_call, group, at_once=at_once, grace=self.cancel_grace)
            raised += [e for e in outcomes if not isinstance(e, asyncio.CancelledError | None)]
        if not raised:
            return None
        first = min(raised, key=lambda error: isinstance(error, Stop) + is_done(error))
        if is_done(first):
            return first.result
        raise first

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        """Run one call; every failure becomes an error result that the model can read."""
        given = {current_agent: lambda: self, current_call: lambda: call}
        overrides = {**given, **(self.dependency_overrides or {})}
        ephemeral, recording = 0, False
        try:
            tool = self.tool(call)
            ephemeral = tool.ephemeral
            arguments = tool.validate(call.arguments)
            recording = True
            self.record(ToolStart(call.id))
            recording = False
            work = tool.execute(arguments, overrides)
            value = await within(tool.timeout, work, grace=self.cancel_grace)
            content = as_content(value, self.max_result_chars)
            return ToolMessage(call.id, call.name, content, ephemeral=ephemeral)
        except ToolError as error:
            text = str(error)
        except (Stop, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if recording or was_cancelled(error) or self.on_tool_error == "raise":
                raise
            logger.info("tool %s failed", call.name, exc_info=True)
            text = describe_error(error)
        return ToolMessage(call.id, call.name, as_content(text, 10_000), True, ephemeral)

    async def finish(self, result: Result) -> Result | None:
        """The result that ends the run, or None to go on.

        All that ends a run with a text passes here: answers, done results, and, once it is too late
        to go on, a Stop and the last summary. None lets those pass as they are.
        """
        if result.stop_reason == "completed" and not result.text.strip():
            self.nudge(EMPTY_REPLY)
            return None
        return result

    def record(self, record: Record) -> None:
        """Append to the log. Synchronous, so that no cancel comes between; emits nothing."""
        self.log.append(record)

    # ---- what mixins use

    def tool(self, call: ToolCall) -> Tool:
        """The tool that a call names, among those on offer. ToolError if there is none."""
        return find_tool(call.name, self._offered)

    def nudge(self, text: str) -> None:
        """Say something to the model as a hidden user message, so that the run goes on.

        Raises Stop("no_progress") instead if it was nudged `MAX_NUDGES` times without calling a
        tool since.
        """
        nudges, said = 0, ""
        for record in reversed(self.log):
            if isinstance(record, AssistantMessage):
                said = said or record.text
            elif isinstance(record, UserMessage) and (record.extra or {}).get("nudge"):
                nudges += 1
            elif isinstance(record, UserMessage | ToolMessage):
                break
        if nudges >= MAX_NUDGES:
            raise Stop("no_progress", said)
        self.tell(text, nudge=True)

    # ---- the steps of `run`

    async def _take_up_open_calls(self) -> None:
        """Run the calls that an earlier run left open; not those that may have run already."""
        if not (opened := open_states(self.log)):
            return
        runnable: list[ToolCall] = []
        again = {tool.name for tool in self._offer() if tool.idempotent}
        for state in opened:
            if state.waits or (state.state == "running" and state.call.name in again):
                runnable.append(state.call)
            else:
                self.record(sealed(state))
        if done := await self.call_tools(runnable):
            raise Stop(done.stop_reason, done.text, done.value)

    def _offer(self) -> Sequence[Tool]:
        """This turn's tools. Its calls are resolved against this snapshot."""
        before, tools = self._offered, tuple(self.toolset())
        old, new = by_name(before).keys(), by_name(tools).keys()
        self._offered = tools
        if before and tools != before:
            self.emit(ToolsChangedEvent(sorted(new - old), sorted(old - new)))
        return tools

    def _take(self, reply: AssistantMessage) -> None:
        """Record a reply, and tell of it."""
        self.add(reply)
        if self._run is not None and self._run.is_cancelled():
            raise asyncio.CancelledError  # which the model has swallowed

    def _cut_short(self, reply: AssistantMessage) -> Result | None:
        """The end of a run whose reply is not whole, or None if the model is asked to go on."""
        for call in reply.tool_calls:
            self.record(ToolMessage(call.id, call.name, CUT_OFF, is_error=True))
        word = reply.stop_reason or ""
        most = AGAIN.get(word, 0) if reply.tool_calls or word == "pause" else 0
        replies = [r.stop_reason for r in newest_run(self.log) if isinstance(r, AssistantMessage)]
        if most and replies[-most:] != [word] * most:
            return None
        return Result(reply.text, stop_reason=STOPS.get(word, f"unknown:{word}"))

    async def _run_call(self, call: ToolCall) -> None:
        """Tell of a call, run it, and record its result as soon as there is one."""
        run = self._run
        if run is None or run.halted:
            return
        self._steps += 1
        self.emit(StepStartEvent(call.id, call.name, self._steps))
        self.emit(ToolCallEvent(call.name, call.parsed or {}, call.id))
        if run.events:
            await run.events.join()
        if run.halted:
            return
        start, failure = time.perf_counter(), None
        try:
            result = await self.call_tool(call)
        except BaseException as error:
            if was_cancelled(error) or not (said := self._last_words(call, error)):
                raise  # the call stays open: the view says what is known of it
            result, failure = said, error
            run.halted |= not is_done(error)
        if self._run is not run:
            return  # it did not stop when its run was cancelled, and was left behind
        self.add(replace(result, seconds=round(time.perf_counter() - start, 3)))
        if failure:
            raise failure

    def _last_words(self, call: ToolCall, error: BaseException) -> ToolMessage | None:
        """The result of a call that ends the run; None if it was stopped before its tool began."""
        if not isinstance(error, Stop):
            return ToolMessage(call.id, call.name, describe_error(error), is_error=True)
        if not is_done(error) and call_states(self.log)[call.id].waits:
            return None
        return ToolMessage(call.id, call.name, error.text)

    def _may_overlap(self, call: ToolCall) -> bool:
        return all(tool.parallel for tool in self._offered if tool.name == call.name)

    async def _sum_up(self) -> str:
        """Out of turns: one more request for what was done and what is missing; no call runs."""
        self.tell(OUT_OF_TURNS)
        reply = await self.call_model(Request(await self.context(), self._offer()))
        self._take(replace(reply, tool_calls=(), raw=None) if reply.tool_calls else reply)
        return reply.text


def is_done(error: BaseException) -> TypeGuard[Stop]:
    return isinstance(error, Stop) and error.reason == "done"
