"""An agent is a for-loop: `Loop` is that loop, `ChatModel` is what it calls.

Copy with: runs.py, tools.py, prefix.py and what they name.

Read `Loop.work` first. It calls seven small methods, the seams. A mixin overrides one or two of
them and calls `super()`: requests and calls go from the left of a class line to the right, views
come back from the right to the left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import Any, Literal, Protocol

from . import events
from .depends import current_agent, current_call
from .errors import ToolError
from .messages import (
    AssistantMessage,
    Message,
    Record,
    Request,
    Result,
    Stop,
    SystemMessage,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolStart,
    stamped,
)
from .prefix import PrefixMeter
from .results import as_content, describe_error
from .runs import Runs
from .tools import Tool, check_unique_names, find_tool
from .transcript import (
    View,
    call_states,
    closing_results,
    cut_off_in_a_row,
    nudges_since_a_call,
    open_calls,
    with_unique_ids,
)
from .waiting import settle, was_cancelled, within

logger = logging.getLogger("agentloop")

OUT_OF_TURNS = (
    "You have reached the limit of turns and cannot call tools any more. "
    "Say what you have done, what you found, and what is still missing."
)
CUT_OFF = "Not run: the reply ended before it was complete. Do it in smaller pieces."
EMPTY_REPLY = "Your last reply was empty. Answer, or call a tool."
GO_ON = "Go on."
MAX_NUDGES = 3
MAX_CUT_OFF = 3  # replies in a row, each at the full price of its output
UNFINISHED = {  # how a reply may end too early, and the stop reason if it was to be the answer
    "length": "limit:length",
    "context_overflow": "context_overflow",
    "pause": "",
}


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
        on_delta: events.OnDelta | None = None,
    ) -> AssistantMessage: ...


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
    tools: Sequence[Tool] = ()
    system_prompt: str = ""
    max_iterations: int = 200
    tool_choice: ToolChoice = "auto"
    dependency_overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None
    max_parallel: int = 16
    max_result_chars: int = 100_000
    on_tool_error: Literal["return", "raise"] = "return"

    _offered: Sequence[Tool] | None = field(default=None, init=False)
    _steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.llm, type) or not hasattr(self.llm, "ainvoke"):
            raise TypeError(f"llm= needs a chat model, such as ChatOpenAI(...), not {self.llm!r}")
        if self.max_iterations < 1 or self.max_parallel < 1:
            raise ValueError("max_iterations and max_parallel have to be at least 1")
        if self.on_tool_error not in ("return", "raise"):
            raise ValueError(f"on_tool_error is 'return' or 'raise', not {self.on_tool_error!r}")
        for dependency, override in (self.dependency_overrides or {}).items():
            if not callable(override):
                name = getattr(dependency, "__name__", dependency)
                raise TypeError(
                    f"dependency_overrides[{name}] has to be a function: lambda: {override!r:.40}"
                )
        check_unique_names(self.tools)
        self.tools = list(self.tools)

    # ---- the loop

    async def work(self) -> Result:
        """Up to `max_iterations` times: look at the context, call the model, call its tools."""
        if answer := await self._take_up_open_calls():
            return answer
        tool_choice = self.tool_choice
        for _ in range(self.max_iterations):
            request = Request(await self.context(), self._offer(tool_choice), tool_choice)
            reply = self._take(await self.call_model(request))
            if reply.stop_reason in UNFINISHED:  # its calls may be incomplete, so none runs
                answer = self._ask_for_the_rest(reply)
            elif reply.tool_calls:
                answer = await self.call_tools(reply.tool_calls)
            else:
                answer = Result(reply.text)
            if answer and (answer := await self.finish(answer)):
                return answer
            tool_choice = "auto"  # a forced tool is forced once
        return await self._sum_up()

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
        meter = self.meter(llm) if self.listened else self._cache.get((PrefixMeter, id(llm)))
        if meter is not None:  # somebody listens, or it estimates for a mixin
            self.emit(meter.send(request))
        reply = await llm.ainvoke(
            request.messages,
            request.tools,
            tool_choice=request.tool_choice,
            on_delta=self.emit if self.listened and request.purpose == "step" else None,
        )
        if meter is not None:
            meter.report(reply)
        return stamped(reply, time.perf_counter() - start, getattr(llm, "model", None))

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        """Run one turn's calls side by side, all answered; a Result if a done tool ended the run.

        Whatever a call raises waits until its siblings have settled. Then a crash outranks
        another Stop, which outranks done; among equals the first call's wins.
        """
        raised: list[BaseException] = []
        for overlap, group in groupby(calls, self._may_overlap):
            at_once = self.max_parallel if overlap else 1
            outcomes = await settle(self._answer, group, at_once=at_once, grace=self.cancel_grace)
            raised += [e for e in outcomes if not isinstance(e, asyncio.CancelledError | None)]
        if not raised:
            return None
        first = min(raised, key=lambda e: e.reason == "done" if isinstance(e, Stop) else -1)
        if isinstance(first, Stop) and first.reason == "done":
            return Result(first.text, first.value, "done")
        raise first

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        """Run one call; every failure becomes an error result that the model can read."""
        given = {current_agent: lambda: self, current_call: lambda: call}
        overrides = given | dict(self.dependency_overrides or {})
        ephemeral = 0
        try:
            tool = self.tool(call)
            ephemeral = tool.ephemeral
            arguments = tool.validate(call.arguments)
            self.record(ToolStart(call.id))
            work = tool.execute(arguments, overrides)
            value = await within(tool.timeout, work, grace=self.cancel_grace)
            content = as_content(value, self.max_result_chars)
            return ToolMessage(call.id, call.name, content, ephemeral=ephemeral)
        except ToolError as error:
            text = str(error)
        except asyncio.CancelledError as error:
            if was_cancelled(error):
                raise
            text = describe_error(error)  # the tool's own doing, not the end of the run
        except (Stop, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self.on_tool_error == "raise":
                raise
            logger.info("tool %s failed", call.name, exc_info=True)
            text = describe_error(error)
        return ToolMessage(call.id, call.name, as_content(text, 10_000), True, ephemeral)

    async def finish(self, result: Result) -> Result | None:
        """The answer that ends the run, or None to go on. Done results pass here too."""
        if result.stop_reason == "completed" and not result.text.strip():
            self.nudge(EMPTY_REPLY)
            return None
        return result

    def record(self, record: Record) -> None:
        """Append to the log. Synchronous, so that no cancel comes between; emits nothing."""
        self.log.append(record)

    # ---- what mixins use

    def meter(self, model: ChatModel | None = None) -> PrefixMeter:
        """What measures the requests to a model (the agent's own), each against the one before."""
        key = PrefixMeter, id(model or self.llm)
        meter: PrefixMeter | None = self._cache.get(key)
        if meter is None:
            meter = self._cache[key] = PrefixMeter()
        return meter

    def tool(self, call: ToolCall) -> Tool:
        """The tool that a call names, among those on offer. ToolError if there is none."""
        return find_tool(call.name, self._offered or ())

    def nudge(self, text: str) -> None:
        """Say something to the model as a hidden user message, so that the run goes on.

        Raises Stop("no_progress") instead if it was nudged `MAX_NUDGES` times without calling a
        tool since.
        """
        nudges, said = nudges_since_a_call(self.log)
        if nudges >= MAX_NUDGES:
            raise Stop("no_progress", said)
        self.tell(text, nudge=True)

    # ---- the steps of `work`

    async def _take_up_open_calls(self) -> Result | None:
        """Run the calls that an earlier run left open; not those that may have run already."""
        if not (calls := open_calls(self.log)):
            return None
        states = call_states(self.log)
        idempotent = {tool.name for tool in self._offer() if tool.idempotent}
        again = [
            call
            for call in calls
            if states[call.id] == "waiting"
            or (states[call.id] == "started" and call.name in idempotent)
        ]
        for result in closing_results(self.log):
            if all(result.tool_call_id != call.id for call in again):
                self.record(result)
        answer = await self.call_tools(again) if again else None
        return await self.finish(answer) if answer else None

    def _offer(self, tool_choice: ToolChoice = "auto") -> Sequence[Tool]:
        """This turn's tools. Its calls are resolved against this snapshot."""
        tools, before = tuple(self.toolset()), self._offered
        if tools != before:
            check_unique_names(tools)
            self._offered = tools
            if before is not None:
                were, are = ({tool.name for tool in each} for each in (before, tools))
                self.emit(events.ToolsChangedEvent(sorted(are - were), sorted(were - are)))
        names = [tool.name for tool in tools]
        if tool_choice not in ("auto", "required", "none", *names):
            raise ValueError(f"tool_choice={tool_choice!r} names no tool; there are: {names}")
        return self._offered or tools

    def _take(self, reply: AssistantMessage) -> AssistantMessage:
        """Record a reply and tell of it. Raises Stop if the model refused, or ended oddly."""
        reply = with_unique_ids(reply, self.reader(View).call_ids, fresh=True)
        self.record(reply)
        if reply.usage is not None:
            self.emit(events.UsageEvent(reply.usage, reply.model))
        if reply.thinking:
            self.emit(events.ThinkingEvent(reply.thinking))
        if reply.text.strip():
            self.emit(events.TextEvent(reply.text))
        if self._run is not None and self._run.is_cancelled():
            raise asyncio.CancelledError  # which the model has swallowed
        if reply.stop_reason in (None, "end", "tool_calls", *UNFINISHED):
            return reply
        self._do_not_run(reply)
        word = reply.stop_reason
        raise Stop(word if word == "refused" else f"unknown:{word}", reply.text)

    def _ask_for_the_rest(self, reply: AssistantMessage) -> Result | None:
        """After a reply that is cut off: none of its calls runs, since they may be incomplete."""
        self._do_not_run(reply)
        if reply.tool_calls and cut_off_in_a_row(self.log) < MAX_CUT_OFF:
            return None
        if reply.stop_reason == "pause":
            self.nudge(GO_ON)
            return None
        return Result(reply.text, stop_reason=UNFINISHED[reply.stop_reason or ""])

    def _do_not_run(self, reply: AssistantMessage) -> None:
        for call in reply.tool_calls:
            self.record(ToolMessage(call.id, call.name, CUT_OFF, is_error=True))

    async def _answer(self, call: ToolCall) -> None:
        """Tell of a call, run it, and record its result as soon as there is one."""
        run = self._run
        if run is None or run.halted:
            return
        self._steps += 1
        if self.listened:
            await self._announce(call)
        if run.halted:
            return
        start, failure = time.perf_counter(), None
        try:
            message = await self.call_tool(call)
        except BaseException as error:
            # After a cancel, or a Stop before the tool ran, the call stays open, and the view says
            # what is known of it. Anything else closes it; but for done, no further call starts.
            never_started = call_states(self.log)[call.id] == "waiting"
            not_done = not isinstance(error, Stop) or error.reason != "done"
            if was_cancelled(error) or (isinstance(error, Stop) and not_done and never_started):
                raise
            failure, run.halted = error, not_done
            text = error.text if isinstance(error, Stop) else describe_error(error)
            message = ToolMessage(call.id, call.name, text, is_error=not isinstance(error, Stop))
        if self._run is not run:
            return  # it did not stop when its run was cancelled, and was left behind
        took = time.perf_counter() - start
        self.record(stamped(message, took))
        if self.listened:
            status = "error" if message.is_error else "completed"
            self.emit(events.ToolResultEvent(call.name, message.text, call.id, message.is_error))
            self.emit(events.StepCompleteEvent(call.id, status, took * 1000))
        if failure:
            raise failure

    async def _announce(self, call: ToolCall) -> None:
        """Tell of a call, and wait until a `query_stream` reader has dealt with that."""
        self.emit(events.StepStartEvent(call.id, call.name, self._steps))
        self.emit(events.ToolCallEvent(call.name, call.parsed or {}, call.id))
        if self._run is not None and self._run.queue is not None:
            await self._run.queue.join()

    def _may_overlap(self, call: ToolCall) -> bool:
        return all(tool.parallel for tool in self._offered or () if tool.name == call.name)

    async def _sum_up(self) -> Result:
        """Out of turns: one more request for what was done and what is missing. No call runs."""
        self.tell(OUT_OF_TURNS)
        # tool_choice "none" would make Anthropic bill the whole conversation again.
        reply = await self.call_model(Request(await self.context(), self._offer()))
        reply = self._take(replace(reply, tool_calls=(), raw=None) if reply.tool_calls else reply)
        return Result(reply.text, stop_reason="max_iterations")
