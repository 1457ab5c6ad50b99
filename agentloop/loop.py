"""An agent is a for-loop: `Loop.run` is that loop, `ChatModel` is what it calls.

Copy with: runs.py, tools.py and what they name.

Read `Loop.run` first. It and its steps call seven small methods, the seams: `context`, `toolset`,
`call_model`, `call_tools`, `call_tool`, `finish`, and `record` in runs.py. A mixin overrides a few
of them and calls `super()`. In `class A(DoneTool, Compaction, Loop)` a request or a call enters at
the left and goes right, to `Loop`. A view or a result comes back to the left.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import PositiveFloat, PositiveInt, SkipValidation

from .content import describe_error, safe_str, to_content
from .depends import Overrides, current_agent, current_call
from .errors import RunStopped, ToolError, precedence, report_failed_attempt
from .events import EventQueue, OnDelta, StepStartEvent, ToolCallEvent, ToolsChangedEvent
from .messages import (
    AssistantMessage,
    Extra,
    Message,
    Result,
    Stop,
    SystemMessage,
    TaskComplete,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolStart,
    frozen,
)
from .runs import ANSWERED, ActiveRun, Prompt, Runs
from .stream import EventStream
from .tools import Tool, by_name, find_tool
from .transcript import is_complete, is_own, placeholder_result, with_unique_ids
from .waiting import gather_bounded, is_cancelled, logger, run_blocking, wait_for, was_cancelled

OUT_OF_TURNS = (
    "You have reached the limit of turns and cannot call tools any more. "
    "Say what you have done, what you found, and what is still missing."
)
EMPTY_REPLY = "Your last reply was empty. Answer, or call a tool."
STOPS = {  # other stop reasons of a reply become "unknown:..."
    "refused": "refused",
    "context_overflow": "context_overflow",
    "length": "limit:length",
    "pause": "no_progress",
}
MAX_INCOMPLETE = 5  # so many pauses in a row end a run, or replies whose calls are cut off


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
    """One model request. `purpose` is "step" for a turn of the loop.

    Mixins use other words for their own requests, such as "compaction". If `model` is set, it
    answers instead of `agent.llm`.
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
    system_prompt: sent first with every request: a text, or a plain function that takes the agent
        and returns the text. It is called once, before a run begins: its requests begin alike.
    max_iterations: how many turns (model calls) a run may take; then one more call sums up.
    tool_choice: for the first request after a prompt; "auto" after it, so that a forced tool
        cannot loop.
    dependency_overrides: `{dependency: replacement}`, for tests above all.
    max_parallel: how many calls of one turn run side by side.
    max_result_chars: longer tool results are cut to their head and tail.
    tool_timeout: seconds that a call may take, unless its tool has a `timeout` of its own, which
        may be `math.inf`.
    on_tool_error: "return" lets the model read an exception; "raise" ends the run with it, but for
        a ToolError, which the model always reads.
    """

    llm: ChatModel
    tools: Sequence[Annotated[Tool, SkipValidation]] = ()  # `by_name` checks them, and says more
    system_prompt: str | Callable[[Any], str] = ""
    max_iterations: PositiveInt = 200
    tool_choice: ToolChoice = "auto"
    dependency_overrides: Overrides | None = None
    max_parallel: PositiveInt = 16
    max_result_chars: int = 100_000
    tool_timeout: PositiveFloat | None = None
    on_tool_error: Literal["return", "raise"] = "return"

    # without annotations: an agent has them from its first turn on, so that a fork stays small
    _turn_tools = tuple[Tool, ...]()  # the tools of this turn
    _steps = 0  # how many calls have begun

    def __post_init__(self) -> None:
        super().__post_init__()
        by_name(self.tools)

    def __repr__(self) -> str:
        llm = f"{type(self.llm).__name__}({self.llm.model!r})"  # its own repr may show a key
        counts = f"{len(self.tools)} tools, {len(self.messages)} messages"
        return f"{type(self).__name__}({llm}, {counts})"

    # ---- the loop

    async def run(
        self, prompt: Prompt = None, *, extra: Extra = None, events: EventQueue | None = None
    ) -> Result:
        """Work on a prompt until there is an answer.

        Without a prompt, go on if the model has not had the last word: run the calls that have
        not started, and ask again. An answer that was cut off is a last word, too.

        Raises what the model raises, AgentBusy if a run is going on, and ValueError if there is
        nothing to work on. After an error, `run()` tries again. `extra` is kept in the RunStart.
        `events` gets the events. Call `events.task_done()` for each that you took: no tool starts
        before that was done for its ToolCallEvent.
        """
        async with self._running(prompt, extra, events):
            try:
                await self._resume_open_calls()
                tool_choice = self.tool_choice if is_own(self.messages[-1]) else "auto"
                for _ in range(self.max_iterations):
                    tools = self._snapshot_tools()
                    reply = await self.call_model(Request(await self.context(), tools, tool_choice))
                    self._record_reply(reply)
                    if not is_complete(reply):  # cut off, refused, paused
                        result = self._answer_cut_off(reply)
                    elif reply.tool_calls:
                        result = await self.call_tools(reply.tool_calls)
                    else:
                        result = Result(reply.text)
                    if result and (result := await self.finish(result)):
                        return self._end(result)
                    tool_choice = "auto"  # a forced tool is forced once
                raise Stop("max_iterations", await self._sum_up())
            except Stop as stop:
                return self._end(await self._finish_stopped(stop))
            except (Exception, asyncio.CancelledError) as error:
                return self._end(self._interrupted(error))

    async def query(self, prompt: Prompt) -> str:
        """Return the answer to a prompt, as text. RunStopped: the run ended without one."""
        result = await self.run(prompt)
        if result.stop_reason not in ANSWERED:
            raise RunStopped(result)
        return result.text

    def query_stream(self, prompt: Prompt = None) -> EventStream:
        """Return an iterator over the events of a run, as they happen, and then its Result.

            stream = agent.query_stream(prompt)
            async for event in stream: ...
            stream.result.stop_reason           # `result` is None until the run has ended

        Leaving the iteration cancels the run. No tool starts before its ToolCallEvent has been
        dealt with: leaving there prevents it.
        """
        return EventStream(lambda queue: self.run(prompt, events=queue), 2 * self.cancel_timeout)

    def answer(self, call_id: str, content: object) -> None:
        """Give the result of a call that waits, such as one of an `external` tool.

        Then `run()` goes on. `content` is what a tool may return: text, parts, or data as JSON.
        Raises ValueError that says why the call does not wait, and AgentBusy while a run goes on.
        """
        waiting = self.waiting_call(call_id)
        if waiting.state == "awaiting_approval":
            raise ValueError(f"{call_id!r} waits for approval: decide() it")
        result = to_content(content, self.max_result_chars)
        self.add(waiting.call.answer(result))

    def run_sync(self, prompt: Prompt = None) -> Result:
        """Run a prompt in a script. RuntimeError in async code: `await agent.run(...)` there."""
        return run_blocking(lambda: self.run(prompt), self.cancel_timeout)

    # ---- the seams, for mixins to override; the seventh is `record`, of `Runs`

    async def context(self) -> list[Message]:
        """Return the messages of the next request.

        Makes no request itself; calling it twice gives the same list.
        """
        text = self.system_text()
        if not text:
            return self.messages
        return [SystemMessage(text), *self.messages]

    def toolset(self) -> Sequence[Tool]:
        """Return the tools on offer in this turn."""
        return self.tools

    async def call_model(self, request: Request) -> AssistantMessage:
        """Return the model's reply to one request. Stream a step if somebody listens."""
        llm = request.model or self.llm
        start = time.perf_counter()
        streams = request.purpose == "step" and self.listened
        token = report_failed_attempt.set(self.add)  # the model tells of failed attempts that cost
        try:
            reply = await llm.ainvoke(
                request.messages,
                request.tools,
                tool_choice=request.tool_choice,
                on_delta=self.emit if streams else None,
            )
        finally:
            report_failed_attempt.reset(token)
        seconds = round(time.perf_counter() - start, 3)
        reply = replace(reply, model=reply.model or llm.model, seconds=seconds)
        return with_unique_ids(reply, self.conversation.states.keys(), new=True)

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        """Run one turn's calls, in parallel where their tools allow it.

        Return a Result if a done tool ended the run. Every call gets a result, unless it is
        cancelled or never starts: see `_run_call`. What a call raises waits until its siblings
        have settled. Of several, an error comes first, then a Stop, then a TaskComplete; of two of
        a kind, that of the first call counts.
        """
        raised: list[BaseException] = []
        for overlap, group in groupby(calls, self._may_overlap):
            at_once = self.max_parallel if overlap else 1
            # one task a call; a cancel waits for them, but no longer than the grace
            failures = await gather_bounded(
                self._run_call, group, at_once=at_once, grace=self.cancel_timeout
            )
            raised += [error for error in failures if error]
        if not raised:
            return None
        first = min(raised, key=precedence)
        if isinstance(first, TaskComplete):
            return first.result
        raise first

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        """Run one call. A failure becomes an error result, unless `on_tool_error` is "raise"."""
        overrides = {
            current_agent: lambda: self,
            current_call: lambda: call,
            **(self.dependency_overrides or {}),
        }
        try:
            tool = self.tool(call)
            arguments = tool.validate(call.arguments)
            if is_cancelled():  # something has swallowed that; the run may be over
                raise asyncio.CancelledError
            if tool.external:
                raise Stop("needs_answer")
            self.record(ToolStart(call.id))
            work = tool.execute(arguments, overrides)
            timeout = tool.timeout or self.tool_timeout
            value = await wait_for(timeout, work, grace=self.cancel_timeout)
            content = to_content(value, self.max_result_chars)
            return call.answer(content, ephemeral=tool.ephemeral)
        except ToolError as error:
            text = safe_str(str, error)
        except (Stop, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            ends_run = isinstance(error, Exception) and self.on_tool_error == "raise"
            if was_cancelled(error) or ends_run:
                raise
            logger.warning("tool %s failed", call.name, exc_info=True)
            text = describe_error(error)
        return call.answer(to_content(text, 10_000), is_error=True)

    async def finish(self, result: Result) -> Result | None:
        """Return the result that ends the run, or None to go on.

        Answers, done results and replies that were cut short pass here. A Stop passes here, too,
        also that of `max_iterations`: then it is too late to go on, and None changes nothing. The
        same holds if `run()` resumes an open call to a done tool.
        """
        if result.stop_reason == "completed" and not result.text.strip():
            self.nudge(EMPTY_REPLY)
            return None
        return result

    # ---- what mixins use

    def system_text(self) -> str:
        """Return the text of the system prompt. A function is called before a run begins."""
        if isinstance(self.system_prompt, str):
            return self.system_prompt
        if self._active:
            return self._active.system_text
        return self.system_prompt(self)

    def tool(self, call: ToolCall) -> Tool:
        """Return the tool that a call names, among those on offer. ToolError if there is none."""
        return find_tool(call.name, self._turn_tools)

    # ---- the steps of `run`

    async def _resume_open_calls(self) -> None:
        """Run the calls that are open: for `run()` without a prompt; a prompt closes them first.

        One that had started may have had effects: it runs again only if its tool is idempotent.
        """
        runnable: list[ToolCall] = []
        may_repeat = {tool.name for tool in self._snapshot_tools() if tool.idempotent}
        for state in self.conversation.open_calls:
            if state.waits or (state.state == "running" and state.call.name in may_repeat):
                runnable.append(state.call)
            else:
                self.record(
                    placeholder_result(state)
                )  # what is known of the call; nobody was told of it
        if runnable and (done := await self.call_tools(runnable)):
            raise TaskComplete(done.text, done.value)  # too late to go on: see `finish`

    def _snapshot_tools(self) -> Sequence[Tool]:
        """Return this turn's tools, and keep them: `self.tool(call)` looks calls up in them."""
        before = self._turn_tools
        self._turn_tools = tuple(self.toolset())
        names = by_name(self._turn_tools)
        if before and before != self._turn_tools:
            self.emit(ToolsChangedEvent([*names]))
        return self._turn_tools

    def _record_reply(self, reply: AssistantMessage) -> None:
        """Record a reply, and emit its events. Raises CancelledError if the model swallowed one."""
        self.add(reply)
        if self._active and self._active.is_cancelled():
            raise asyncio.CancelledError

    def _answer_cut_off(self, reply: AssistantMessage) -> Result | None:
        """Answer the calls of an incomplete reply.

        Return the Result that ends the run, or None to ask the model again: it may pause, or have
        its calls cut off, a few times in a row.
        """
        for state in self.conversation.open_calls:
            self.record(placeholder_result(state))
        reason = reply.stop_reason or ""
        most = 1
        if reason == "pause" or (reason == "length" and reply.tool_calls):
            most = MAX_INCOMPLETE
        run = self.conversation.run
        reasons = [each.stop_reason for each in run if isinstance(each, AssistantMessage)]
        if reasons[-most:] != [reason] * most:  # fewer in a row
            return None
        return Result(reply.text, stop_reason=STOPS.get(reason, f"unknown:{reason}"))

    async def _run_call(self, call: ToolCall) -> BaseException | None:
        """Announce a call, run it, and record its result at once. Return what ends the run.

        A call that was cancelled stays open, and so does one that a Stop ended before its tool
        began: the view says what is known of it.
        """
        run = self._active
        if not run or not await self._announce(call, run):
            return None
        start = time.perf_counter()
        result, failure = await self._outcome(call)
        if result is None:
            return failure
        if failure and not isinstance(failure, TaskComplete):
            run.halted = True
        if self._active is run:  # else the tool did not stop when its run was cancelled
            self.add(replace(result, seconds=round(time.perf_counter() - start, 3)))
        return failure

    async def _announce(self, call: ToolCall, run: ActiveRun) -> bool:
        """Emit that a call begins, and wait for the reader of a stream. Return whether to run it.

        It does not run if the run was halted: by an interrupt, an error, or a Stop of a tool.
        """
        if run.halted:
            return False
        self._steps += 1
        self.emit(StepStartEvent(call.id, call.name, self._steps))
        self.emit(ToolCallEvent(call.name, call.parsed or {}, call.id))
        if run.events:
            await run.events.join()
        return not run.halted

    async def _outcome(self, call: ToolCall) -> tuple[ToolMessage | None, BaseException | None]:
        """Run a call. Return its result, and the exception that ends the run, if any."""
        try:
            result = await self.call_tool(call)
            if result.tool_call_id != call.id:
                raise ValueError(
                    f"call_tool({call.id!r}) returned a result of {result.tool_call_id!r}: "
                    "make it with call.answer(...)"
                )
            return result, None
        except Stop as stop:
            if isinstance(stop, TaskComplete) or not self.conversation.states[call.id].waits:
                return call.answer(stop.text), stop
            return None, stop
        except BaseException as error:
            if was_cancelled(error):
                raise
            return call.answer(describe_error(error), is_error=True), error

    def _may_overlap(self, call: ToolCall) -> bool:
        """Return whether a call may run side by side with its neighbours."""
        return all(tool.parallel for tool in self._turn_tools if tool.name == call.name)

    async def _sum_up(self) -> str:
        """Ask the model, out of turns, what was done and what is missing. No call runs."""
        self.add_note(OUT_OF_TURNS)
        # the tools go along, as before: the provider's cache holds their declarations
        reply = await self.call_model(Request(await self.context(), self._snapshot_tools()))
        if reply.tool_calls:
            reply = replace(reply, tool_calls=(), raw=None)
        self._record_reply(reply)
        return reply.text

    async def _finish_stopped(self, stop: Stop) -> Result:
        """Show `finish` the Result of a Stop. The run ends with it all the same."""
        try:
            return await self.finish(stop.result) or stop.result
        except Stop as later:
            return later.result
        except asyncio.CancelledError as cancel:
            return self._interrupted(cancel)
