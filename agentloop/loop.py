"""An agent is a for-loop: `Loop.run` is the loop, `ChatModel` the interface of the model.

Copy with: run.py, stream.py, tools.py and their imports.

Start reading with `Loop.run`. The loop calls seven small methods, the seams: `context`, `toolset`,
`call_model`, `call_tools`, `call_tool`, `finish`, and `record` in history.py. Mixins override some
seams and call `super()`. In `class A(DoneTool, Compaction, Loop)`, requests and calls pass through
the classes from left to right, and their results from right to left.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Annotated, Any, Literal, Protocol, cast, runtime_checkable

from pydantic import PositiveFloat, PositiveInt, SkipValidation

from .content import describe_error, safe_str, to_content, to_result
from .depends import Overrides, current_agent, current_call
from .errors import RunStopped, ToolError, attempts_of, precedence
from .events import EventQueue, OnDelta, StepStartEvent, ToolCallEvent, ToolsChangedEvent
from .messages import (
    AssistantMessage,
    Awaits,
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
from .run import ANSWERED, BaseAgent, Prompt, Run
from .stream import EventStream
from .tools import Tool, by_name, find_tool
from .transcript import CallState, is_complete, is_own, placeholder_result, with_unique_ids
from .waiting import gather_bounded, is_cancelled, logger, run_blocking, wait_for, was_cancelled

OUT_OF_TURNS = (
    "You have reached the limit of turns and cannot call tools any more. "
    "Summarize the completed work, the findings and the remaining tasks."
)
EMPTY_REPLY = "Your last reply was empty. Answer, or call a tool."
STOPS = {  # other stop reasons of a reply become "unknown:..."
    "refused": "refused",
    "context_overflow": "context_overflow",
    "length": "limit:length",
    "pause": "no_progress",
}
MAX_INCOMPLETE = 5  # consecutive pauses, or replies with truncated calls, that end a run


@runtime_checkable
class ChatModel(Protocol):
    """The interface of a chat model. With `on_delta`, the returned reply is also streamed."""

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

    Mixins use other purposes for their requests, such as "compaction". `model` replaces
    `agent.llm` for this request.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "auto"
    purpose: str = "step"
    model: ChatModel | None = None


class Loop(BaseAgent):
    """A for-loop around a chat model and its tools: the smallest agent.

    llm: the chat model.
    tools: the available tools, declared with `@tool`.
    system_prompt: instructions at the beginning of all requests, or a synchronous function that
        receives the agent and returns the instructions. Called once per run, so that all requests
        of the run share the prefix.
    max_iterations: maximum number of turns (model calls) in a run, before a final summary request.
    tool_choice: applies to the first request after a prompt. Subsequent requests use "auto", so
        that a forced tool cannot repeat indefinitely.
    dependency_overrides: `{dependency: replacement}`, mainly for tests.
    max_parallel: maximum number of concurrent calls in a turn.
    max_result_chars: maximum characters of a tool result. Longer results are truncated in the
        middle.
    tool_timeout: maximum seconds per call, unless the tool has its own `timeout`, such as
        `math.inf`.
    on_tool_error: "return" returns an exception to the model, "raise" ends the run with the
        exception. A ToolError is always returned to the model.
    """

    llm: ChatModel
    tools: Sequence[Annotated[Tool, SkipValidation]] = ()  # checked by `by_name`
    system_prompt: str | Callable[[Any], str] = ""
    max_iterations: PositiveInt = 200
    tool_choice: ToolChoice = "auto"
    dependency_overrides: Overrides | None = None
    max_parallel: PositiveInt = 16
    max_result_chars: int = 100_000
    tool_timeout: PositiveFloat | None = None
    on_tool_error: Literal["return", "raise"] = "return"

    # not annotated, and therefore not set before the first turn: a fork remains small
    _turn_tools = tuple[Tool, ...]()  # the tools of this turn
    _steps = 0  # number of started calls

    def __post_init__(self) -> None:
        super().__post_init__()
        by_name(self.tools)

    def __repr__(self) -> str:
        llm = f"{type(self.llm).__name__}({self.llm.model!r})"  # the model's repr may contain a key
        counts = f"{len(self.tools)} tools, {len(self.messages)} messages"
        return f"{type(self).__name__}({llm}, {counts})"

    # ---- the loop

    async def run(
        self, prompt: Prompt = None, *, extra: Extra = None, events: EventQueue | None = None
    ) -> Result:
        """Work on a prompt until the model answers.

        Without a prompt, continue: execute the calls that have not started, and send the next
        request. After an error, `run()` repeats the failed request.

        extra: data for the RunStart in the log.
        events: a queue that receives the events. Call `events.task_done()` after each event: no
            tool starts before its ToolCallEvent is done.

        Raises the model's errors, AgentBusy during another run, and ValueError for an empty prompt.
        Without a prompt, also raises ValueError if the last message is a reply of the model, even a
        truncated one, unless the model paused.
        """
        async with Run(self, prompt, extra, events) as run:
            try:
                await self._resume_open_calls()
                tool_choice = self.tool_choice if is_own(self.messages[-1]) else "auto"
                for _ in range(self.max_iterations):
                    tools = self._snapshot_tools()
                    reply = await self.call_model(Request(await self.context(), tools, tool_choice))
                    self._record_reply(reply)
                    if not is_complete(reply):  # truncated, refused, paused
                        result = self._close_truncated_calls(reply)
                    elif reply.tool_calls:
                        result = await self.call_tools(reply.tool_calls)
                    else:
                        result = Result(reply.text)
                    if result and (result := await self.finish(result)):
                        return run.end(result)
                    tool_choice = "auto"  # a forced tool is forced once
                raise Stop("max_iterations", await self._sum_up())
            except Stop as stop:
                return run.end(await self._finish_stopped(run, stop))
            except (Exception, asyncio.CancelledError) as error:
                return run.end(run.result_if_interrupted(error))

    async def query(self, prompt: Prompt) -> str:
        """Return the answer to a prompt as text. Raises RunStopped without an answer."""
        result = await self.run(prompt)
        if result.stop_reason not in ANSWERED:
            raise RunStopped(result)
        return result.text

    def query_stream(self, prompt: Prompt = None) -> EventStream:
        """Return an asynchronous iterator over the events of a run, with the Result at the end.

            stream = agent.query_stream(prompt)
            async for event in stream: ...
            stream.result.stop_reason           # `result` is None until the run has ended

        Leaving the iteration cancels the run. A tool starts only after the reader has processed its
        ToolCallEvent, so leaving at this event prevents the call.
        """
        return EventStream(lambda queue: self.run(prompt, events=queue), 2 * self.cancel_timeout)

    def answer(self, call_id: str, content: object) -> None:
        """Record the result of a pending call, or the answer to a call's UserQuestion.

        Calls of `external` tools, for example, await a result. Call `run()` to continue. `content`
        may be any value that a tool may return. A call with a UserQuestion is executed again, with
        `content` as the answer.
        Raises ValueError if the call does not await a result, and AgentBusy during a run.
        """
        waiting = self.waiting_call(call_id)
        if waiting.awaits and (entry := waiting.awaits.answered(content)):
            self.record(waiting.call.record_of(entry))
            return
        result = to_result(waiting.call, content, self.max_result_chars)
        self.add(waiting.call.record_of(result))

    def run_sync(self, prompt: Prompt = None) -> Result:
        """Run a prompt synchronously. Raises RuntimeError in async code: use `await run(...)`."""
        return run_blocking(lambda: self.run(prompt), self.cancel_timeout)

    # ---- the seams, for mixins to override; the seventh is `record` in history.py

    async def context(self) -> list[Message]:
        """Return the messages of the next request.

        Makes no model request. Repeated calls return equal lists.
        """
        text = self.system_text()
        if not text:
            return self.messages
        return [SystemMessage(text), *self.messages]

    def toolset(self) -> Sequence[Tool]:
        """Return the tools offered to the model in this turn."""
        return self.tools

    async def call_model(self, request: Request) -> AssistantMessage:
        """Return the model's reply. Replies of turns are streamed to listeners and readers."""
        llm = request.model or self.llm
        start = time.perf_counter()
        streams = request.purpose == "step" and self.listened
        try:
            reply = await llm.ainvoke(
                request.messages,
                request.tools,
                tool_choice=request.tool_choice,
                on_delta=self.emit if streams else None,
            )
        except BaseException as error:
            for attempt in attempts_of(error):  # may be billed
                self.add(attempt)
            raise
        for attempt in reply.attempts:
            self.add(attempt)
        seconds = round(time.perf_counter() - start, 3)
        reply = replace(reply, model=reply.model or llm.model, seconds=seconds, attempts=())
        return with_unique_ids(reply, self.conversation.states.keys(), new=True)

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        """Execute the calls of a turn, concurrently if their tools permit parallel calls.

        Return a Result if a done tool ended the run. Every call receives a result unless it is
        cancelled or never starts: see `_run_call`. After all calls have ended, one exception takes
        effect: an error precedes a Stop, and a Stop a TaskComplete; among equals, the first call
        decides.
        """
        raised: list[BaseException] = []
        for overlap, group in groupby(calls, self._may_overlap):
            at_once = self.max_parallel if overlap else 1
            outcomes = await gather_bounded(
                self._run_call, group, at_once=at_once, grace=self.cancel_timeout
            )
            raised += [error for error in outcomes if error]
        if not raised:
            return None
        first = min(raised, key=precedence)
        if isinstance(first, TaskComplete):
            return first.result
        raise first

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        """Execute one call. Exceptions become error results: see `on_tool_error`."""
        overrides = {
            current_agent: lambda: self,
            current_call: lambda: call,
            **(self.dependency_overrides or {}),
        }
        try:
            tool = self.tool(call)
            arguments = tool.validate(call.arguments)
            if is_cancelled():  # a CancelledError was suppressed: the run may have ended
                raise asyncio.CancelledError
            if awaited := self.conversation.state_of(call).awaits:
                raise Stop(awaited.stop_reason)  # the agent's class may lack the gate that decides
            if tool.external:
                self.record(Awaits(call.id))
                raise Stop("needs_answer")
            self.record(ToolStart(call.id))
            work = tool.execute(arguments, overrides)
            timeout = tool.timeout or self.tool_timeout
            if timeout:
                work = wait_for(timeout, work, grace=self.cancel_timeout)
            value = await work
            return to_result(call, value, self.max_result_chars, tool.ephemeral)
        except Stop as stop:
            entry = stop.entry(call)
            if entry is None:
                raise
            self.record(entry)
            raise Stop(stop.reason, stop.text) from stop  # the entry is about this call only
        except (KeyboardInterrupt, SystemExit):
            raise
        except ToolError as error:
            text = safe_str(str, error)
        except BaseException as error:
            ends_run = isinstance(error, Exception) and self.on_tool_error == "raise"
            if was_cancelled(error) or ends_run:
                raise
            logger.warning("tool %s failed", call.name, exc_info=True)
            text = describe_error(error)
        return call.answer(to_content(text, 10_000), is_error=True)

    async def finish(self, result: Result) -> Result | None:
        """Return the result that ends the run, or None to continue.

        Receives answers, done results, truncated replies, and the results of a Stop. After a Stop,
        for example due to `max_iterations`, and after a resumed call of a done tool, returning None
        has no effect.
        """
        if result.stop_reason == "completed" and not result.text.strip():
            self.nudge(EMPTY_REPLY)
            return None
        return result

    # ---- what tools and mixins use

    def system_text(self) -> str:
        """Return the text of the system prompt, which is constant during a run."""
        if isinstance(self.system_prompt, str):
            return self.system_prompt
        if self.active_run:
            return self.active_run.system_text
        return self.system_prompt(self)

    def tool(self, call: ToolCall) -> Tool:
        """Return a call's tool, from this turn's tools. Raises ToolError for an unknown name."""
        if not isinstance(cast(object, call), ToolCall):
            raise TypeError("agent.tool is not a decorator: use @tool, and Agent(tools=[search])")
        return find_tool(call.name, self._turn_tools)

    # ---- the steps of `run`

    async def _resume_open_calls(self) -> None:
        """Execute the open calls, which exist only in a `run()` without a prompt.

        Started calls may have had effects, and are executed again only if their tool is idempotent.
        """
        runnable: list[ToolCall] = []
        ended: list[CallState] = []  # must not be executed again
        may_repeat = {tool.name for tool in self._snapshot_tools() if tool.resumes}
        for state in self.conversation.open_calls:
            if state.waits or (state.state == "running" and state.call.name in may_repeat):
                runnable.append(state.call)
            else:
                ended.append(state)
                waiting = state.waiting_inside
                runnable += [inner.call for inner in waiting if inner.start or inner.newest(Awaits)]
        done = await self.call_tools(runnable) if runnable else None
        for state in self.conversation.open_calls:
            if state in ended:
                self.record(placeholder_result(state))
        if done:
            raise TaskComplete(done.text, done.value)

    def _snapshot_tools(self) -> Sequence[Tool]:
        """Return this turn's tools, from which `self.tool(call)` resolves the calls of the turn."""
        before = self._turn_tools
        self._turn_tools = tuple(self.toolset())
        names = by_name(self._turn_tools)
        if before and before != self._turn_tools:
            self.emit(ToolsChangedEvent([*names]))
        return self._turn_tools

    def _record_reply(self, reply: AssistantMessage) -> None:
        """Record a reply. Raises CancelledError if the model suppressed a cancellation."""
        self.add(reply)
        if self.active_run and self.active_run.is_cancelled():
            raise asyncio.CancelledError

    def _close_truncated_calls(self, reply: AssistantMessage) -> Result | None:
        """Close the calls of an incomplete reply.

        Return None to send another request after a pause or truncated calls. Otherwise, and after
        `MAX_INCOMPLETE` consecutive replies of this kind, return the Result that ends the run.
        """
        for state in self.conversation.open_calls:
            self.record(placeholder_result(state))
        reason = reply.stop_reason or ""
        may_continue = reason == "pause" or (reason == "length" and reply.tool_calls)
        replies = [old for old in self.conversation.run if isinstance(old, AssistantMessage)]
        newest = [old.stop_reason for old in replies[-MAX_INCOMPLETE:]]
        if may_continue and newest.count(reason) < MAX_INCOMPLETE:
            return None
        return Result(reply.text, stop_reason=STOPS.get(reason, f"unknown:{reason}"))

    async def _run_call(self, call: ToolCall) -> None:
        """Announce and execute a call, and record its result immediately.

        Raises exceptions that end the run. Cancelled calls remain open, as do calls whose tool did
        not start because of a Stop. The rendered messages distinguish the two cases.
        """
        run = self.active_run
        if not run or not await self._announce(call, run):
            return
        start = time.perf_counter()
        result = None
        try:
            result = await self.call_tool(call)
            if result.tool_call_id != call.id:
                raise ValueError(
                    f"call_tool({call.id!r}) returned a result of {result.tool_call_id!r}: "
                    "make it with call.answer(...)"
                )
        except BaseException as error:
            result = self._result_of_failure(call, error)
            if result and not isinstance(error, TaskComplete):
                run.state = "stopping"
            raise
        finally:
            # a tool that ignores a cancellation may end after the run
            if result and self.running and self.active_run is run:
                seconds = round(time.perf_counter() - start, 3)
                self.add(call.record_of(replace(result, seconds=seconds)))

    async def _announce(self, call: ToolCall, run: Run) -> bool:
        """Emit the ToolCallEvent, wait for its reader, and return whether to execute the call."""
        if run.state != "running":
            return False
        self._steps += 1
        self.emit(StepStartEvent(call.id, call.name, self._steps))
        self.emit(ToolCallEvent(call.name, call.parsed or {}, call.id, call.parent_id))
        if run.events:
            await run.events.join()
        return run.state == "running"

    def _result_of_failure(self, call: ToolCall, error: BaseException) -> ToolMessage | None:
        """Return the result of a call that ends the run, or None if the call remains open."""
        if was_cancelled(error):
            return None
        if not isinstance(error, Stop):
            return call.answer(describe_error(error), is_error=True)
        state = self.conversation.state_of(call)
        stays_open = state.waits or state.waiting_inside
        if stays_open and not isinstance(error, TaskComplete):
            return None
        return call.answer(error.text)

    def _may_overlap(self, call: ToolCall) -> bool:
        """Return whether a call may run concurrently with adjacent calls."""
        return all(tool.parallel for tool in self._turn_tools if tool.name == call.name)

    async def _sum_up(self) -> str:
        """Request a summary of the work after the last turn. Calls are not executed."""
        self.add_note(OUT_OF_TURNS)
        # with the tools of the last request: the provider's cache holds their declarations
        reply = await self.call_model(Request(await self.context(), self._snapshot_tools()))
        if reply.tool_calls:
            reply = replace(reply, tool_calls=(), raw=None)
        self._record_reply(reply)
        return reply.text

    async def _finish_stopped(self, run: Run, stop: Stop) -> Result:
        """Pass the Result of a Stop to `finish`, which cannot continue the run."""
        try:
            return await self.finish(stop.result) or stop.result
        except Stop as later:
            return later.result
        except asyncio.CancelledError as cancel:
            return run.result_if_interrupted(cancel)
