"""The run lifecycle: start, interruption and end of a run, and the base class of agents.

Copy with: content.py, errors.py, history.py and their imports.

`Loop.run` contains the run itself. After any kind of end, the log is consistent and another run can
follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Self, cast

from pydantic import NonNegativeFloat

from .content import describe_error
from .errors import AgentBusy
from .events import Event, EventQueue
from .history import History
from .messages import (
    AssistantMessage,
    Content,
    Extra,
    Message,
    Part,
    Result,
    RunEnd,
    RunStart,
    UserMessage,
)
from .transcript import placeholder_result, usage_of

Prompt = str | Sequence[str | Part] | None

ANSWERED = ("completed", "done", "max_iterations")  # stop reasons of runs with an answer
INTERRUPTED = "The user interrupted you here."


@dataclass(eq=False, repr=False)
class Run:
    """One run of an agent: `async with Run(agent, prompt) as run: ... return run.end(result)`.

    Entering prevents concurrent runs, and records the RunStart and the prompt. Leaving with an
    exception records a RunEnd.

    state: "running" while calls may start, "stopping" after an error, a Stop or `interrupt`, and
        "interrupted" once `interrupt` has cancelled the task.
    system_text: the system prompt of all requests of the run.
    events: the queue of the stream's reader, if there is a reader.
    """

    agent: BaseAgent
    prompt: Prompt
    extra: Extra
    events: EventQueue | None
    task: asyncio.Task[object] = field(init=False)
    system_text: str = ""
    state: Literal["running", "stopping", "interrupted"] = "running"
    _note: str = ""  # sent to the model after an interruption

    async def __aenter__(self) -> Self:
        agent = self.agent
        await agent.wait_for_cancelled_run()
        text = agent.system_text()
        if not isinstance(cast(object, text), str):
            raise TypeError(f"system_prompt: the function must return text, not {text!r:.80}")
        self.system_text = text
        self.task = cast(asyncio.Task[object], asyncio.current_task())
        self._cancels_before = self.task.cancelling()
        agent.active_run = self
        try:
            self._record_start()
        except BaseException:
            agent.active_run = None
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        agent = self.agent
        if agent.active_run is not self:  # its event loop was closed, and another run has started
            return
        try:
            if isinstance(error, asyncio.CancelledError):
                agent.record(RunEnd("cancelled"))
            elif error and not isinstance(agent.log[-1], RunEnd):  # otherwise saving RunEnd failed
                agent.record(RunEnd("error", describe_error(error)))
        finally:
            agent.active_run = None

    def is_cancelled(self) -> bool:
        """Return whether the run's task was cancelled during the run."""
        return self.task.cancelling() > self._cancels_before

    def interrupt(self, note: str) -> None:
        """Prevent additional calls, and cancel the task at its next await. Thread-safe."""
        if self.state == "running":
            self.state = "stopping"

        def cancel() -> None:
            if self.agent.active_run is self and self.state != "interrupted":
                self.state = "interrupted"
                self._note = note
                self.task.cancel()

        with suppress(RuntimeError):  # the event loop is closed
            self.task.get_loop().call_soon_threadsafe(cancel)

    def result_if_interrupted(self, error: BaseException) -> Result:
        """Return the Result if `interrupt` ended the run. Otherwise raise the error.

        The error is a CancelledError, or an exception that a model raised in response.
        """
        if self.state != "interrupted":
            raise error
        self.task.uncancel()
        if self.is_cancelled():  # also cancelled externally
            raise error
        self.agent.add_note(self._note)
        return Result(stop_reason="interrupted")

    def end(self, result: Result) -> Result:
        """Record the RunEnd, emit its event, and return the complete Result."""
        agent = self.agent
        agent.add(RunEnd(result.stop_reason, text=result.text))
        usage = usage_of(agent.conversation.run)
        # if no call awaits approval or an answer, `pending` lists the calls without a result
        open_calls = tuple(state.presented for state in agent.conversation.open_calls)
        return replace(result, usage=usage, pending=agent.pending or open_calls)

    def _record_start(self) -> None:
        """Record the RunStart and the prompt. A prompt closes open calls.

        Raises ValueError for an empty prompt, or without a prompt if no message awaits a reply.
        """
        agent, prompt = self.agent, self.prompt
        if prompt is None:
            if not can_continue(agent.messages):
                raise ValueError(
                    "nothing to continue: no message awaits a reply of the model. "
                    "Give run() a prompt, such as 'Continue.'"
                )
        elif not (prompt.strip() if isinstance(prompt, str) else prompt):
            raise ValueError("the prompt is empty: write the task")
        agent.record(RunStart(extra=self.extra))
        if prompt is None:
            return
        for state in agent.conversation.open_calls:
            agent.record(placeholder_result(state))
        message = UserMessage(cast(Content, prompt))  # converts strings to parts
        if agent.messages[-1:] != [message]:  # already present if run() is repeated after an error
            agent.record(message)


def can_continue(messages: Sequence[Message]) -> bool:
    """Return whether the last message awaits a reply, or is a reply in which the model paused."""
    if not messages:
        return False
    last = messages[-1]
    return not isinstance(last, AssistantMessage) or last.stop_reason == "pause"


class BaseAgent(History):
    """The base of agents, without the loop: one run at a time.

    cancel_timeout: maximum seconds to wait for a cancelled tool.
    """

    __slots__ = ("active_run",)  # in addition to __dict__, so that a fork stays below 1 KB

    cancel_timeout: NonNegativeFloat = 5.0

    def __post_init__(self) -> None:
        self.active_run: Run | None = None
        super().__post_init__()

    @property
    def running(self) -> bool:
        """Return whether a run is in progress. A run ends with its event loop."""
        run = self.active_run
        return run is not None and not run.task.get_loop().is_closed()

    @property
    def listened(self) -> bool:
        """Return whether events have a listener or a reader."""
        return bool(self.listeners or (self.active_run and self.active_run.events))

    def emit(self, event: Event) -> None:
        super().emit(event)
        if self.active_run and self.active_run.events:
            self.active_run.events.put_nowait(event)

    def refuse_if_busy(self) -> None:
        """Raise AgentBusy during a run."""
        if self.running:
            raise AgentBusy(
                "this agent is running a query: await the query (or close its stream) first, or "
                "use a separate copy for every query: agent.fork()"
            )

    async def wait_for_cancelled_run(self) -> None:
        """Wait until a cancelled run has ended. Raises AgentBusy during any other run."""
        run = self.active_run
        if run and self.running and run.is_cancelled():
            await asyncio.wait([run.task], timeout=2 * self.cancel_timeout)
        self.refuse_if_busy()

    def interrupt(self, note: str | None = None) -> None:
        """End the current run, with stop_reason "interrupted" in its Result. Thread-safe.

        The model is informed about the interruption, including the note. Calls that have not
        started remain pending: the next prompt cancels them, and `run()` without a prompt executes
        them. Has no effect between runs, or if the run ends before its next await.
        """
        if run := self.active_run:
            run.interrupt(f"{INTERRUPTED} {note or ''}".strip())

    def system_text(self) -> str:
        """Return the text of the system prompt: empty here, because `Loop` has the setting."""
        return ""
