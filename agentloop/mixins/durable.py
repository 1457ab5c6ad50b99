"""Runs an agent in a DBOS workflow: after a crash, the run continues at its last step.

Copy with: the core, common/records.py. Needs `pip install 'dbos>=3.4,<4'`.

    class DurableAgent(Agent, Durable): ...    # last: the other mixins run again in a replay

    @DBOS.workflow()
    async def answer(prompt: str) -> str:
        return await DurableAgent(llm=llm, tools=tools).query(prompt)

A model request is one step. A tool call is two: the first says that the tool is about to start, and
the second holds the result. When DBOS recovers a workflow, it replays it from the beginning, and a
completed step returns what it has stored: no reply is billed twice, and the log gets the same
records again. In a session, they replace those of the first attempt. A call that had started, but
has no result, may have had effects. If its tool is idempotent, it runs again; if not, the model is
told that the outcome is unknown. A nested call (see `NestedCalls`) is part of its caller's step: if
that step runs again, a nested call runs again only if its own tool is idempotent. Outside a
workflow, and inside a step of yours, this mixin does nothing.

Mixins after Durable run inside the steps, which a replay skips. Those before Durable run again, so
their decisions must depend on nothing but the log, and not on which of several parallel calls ends
first: with `max_tool_failures`, for example, a replay may end the run elsewhere. The name of a
request's step contains the agent's classes in order and a checksum of the first task. If one of
these changes before a replay, the run ends with DBOSUnexpectedStepError, which shows both names.
The model and the system prompt may change: new requests use the new ones.

Time isn't in the log: in a recovered run, `max_seconds` and `approval_timeout` start again, because
the run might otherwise end during the replay. For limits that count from the first start, use
`SetWorkflowTimeout` and the timeout of `DBOS.recv_async`.

An `approval_callback` may wait with `DBOS.recv_async` unless it's asked about a nested call or the
call of a sub-agent, because these run inside a step. For them, set no callback, and let the
workflow receive a verdict for each call in `result.pending`, `decide`, and `run()` again.

In a replay, a session has the records of the first attempt until `run` replaces them. So let a
workflow begin with `run(prompt)`, and receive its verdicts later. If it begins with `decide`, or
with a `run()` that has no prompt, a recovery may end with a ValueError, because the first attempt
has done that already.

DBOS migrates an older database. It works with a newer one unless that lacks something, which DBOS
names in its error. With Python 3.12 or newer, DBOS needs SQLite 3.42 or Postgres.

`interrupt` and messages from outside the workflow aren't replayed: cancel with
`DBOS.cancel_workflow`, and get messages with `DBOS.recv_async` (after a cancellation, it waits
until a message arrives). A workflow runs one agent at a time. To run several at once, let
`workflow_tools` start child workflows.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from typing import Any
from zlib import crc32

from ..common.records import dump_record, load_record
from ..errors import result_of_calls
from ..events import Event
from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Result,
    Stop,
    TaskComplete,
    ToolCall,
    ToolMessage,
)
from ..model import Request
from ..transcript import OUTCOME_UNKNOWN, Record, RunStart, ToolStart
from ..waiting import capture

# Inside a step: the agent that executes the step, and the list that collects the agent's records.
_recording = ContextVar[tuple[Loop, list[Record | Stop]] | None]("recording", default=None)
# Inside a step that runs again, because the process was killed during it
_repeating = ContextVar("repeating", default=False)
# The id of the replayed workflow, until the first step that is executed.
_replayed = ContextVar[str | None]("replayed", default=None)


class Durable(Loop):
    """Runs requests and calls as steps of the current DBOS workflow.

    Listeners get no events during a replay. Code that reads a `query_stream` inside a workflow is
    replayed itself, and gets all of them.

    workflow_tools: names of tools that run in the workflow instead of a step, so that they may
        start child workflows or wait for messages. They need `parallel=False`. A replay repeats
        what they do outside of steps.
    """

    workflow_tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for tool in self.tools:
            if tool.parallel and tool.name in self.workflow_tools:
                raise ValueError(
                    f"the workflow tool {tool.name!r} needs parallel=False, because a replay knows "
                    "steps by their order"
                )
        self._reserved = dict[str, Any]()  # the steps of the turn's calls, by call id

    def record(self, record: Record) -> None:
        if isinstance(record, RunStart) and (step := _reserve_step()):
            # a replay has the same id, and replaces the first attempt, which a session has saved
            record = replace(record, workflow_run=f"{_dbos().workflow_id}:{step.step_id}")
        super().record(record)
        recording = _recording.get()
        if recording and recording[0] is self:
            recording[1].append(record)

    def emit(self, event: Event) -> None:
        replayed = _replayed.get()
        if not replayed or replayed != _dbos().workflow_id:
            super().emit(event)
            return
        listeners, self.listeners = self.listeners, ()  # only a stream receives the event
        try:
            super().emit(event)
        finally:
            self.listeners = listeners

    async def call_model(self, request: Request) -> AssistantMessage:
        step = _reserve_step()
        if step is None:
            return await super().call_model(request)
        classes = [cls.__name__ for cls in type(self).__mro__]
        task = crc32(self.messages[0].text.encode())
        name = f"model {request.purpose} for task {task:08x} by {classes}"
        reply: AssistantMessage = await self._run_step(step, name, super().call_model, request)
        return reply

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        for call in calls:  # in call order, in whatever order they run
            if call.name in self.workflow_tools:
                self._reserved[call.id] = None, None
            else:
                self._reserved[call.id] = _reserve_step(), _reserve_step()
        # If a call ends the run, others don't start. In a replay these must be the same ones, so
        # none waits until another has ended.
        size = self.max_parallel if _dbos().workflow_id else len(calls)
        outcomes = list[BaseException | None]()
        for at in range(0, len(calls), size or 1):
            ended = await capture(super().call_tools(calls[at : at + size]))
            if isinstance(ended, Result):
                ended = TaskComplete(ended.text, ended.value)
            outcomes.append(ended)
        return result_of_calls(outcomes)

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        # if a mixin repeats a call, it needs new steps
        start, end = self._reserved.pop(call.id, None) or (_reserve_step(), _reserve_step())
        started_before = start is not None or _repeating.get()

        def begin() -> None:  # a replay skips it
            nonlocal started_before
            started_before = False

        if start:
            await start.run_async({"name": f"start {call.name}"}, begin)
            _repeating.set(started_before)
        work = super().call_tool
        if started_before:
            named = [tool for tool in self.toolset() if tool.name == call.name]
            if not any(tool.idempotent for tool in named):
                work = self._answer_unknown
        if start is None:  # outside a workflow, or inside a step
            return await work(call)
        result: ToolMessage = await self._run_step(end, call.name, work, call)
        return result

    async def _answer_unknown(self, call: ToolCall) -> ToolMessage:
        """Answer a call that had started before the replay, and may not run again."""
        self.record(ToolStart(call.id))
        return call.answer(OUTCOME_UNKNOWN, is_error=True, origin="sealed")

    async def _run_step(self, step: Any, name: str, work: Any, argument: object) -> Any:
        """Run `work(argument)` as a step. In a replay, get the records that it has stored."""
        records: list[Record | Stop] = []  # of the step, followed by the return value or the Stop

        async def run() -> list[bytes | Stop]:
            _recording.set((self, records))
            _replayed.set(None)
            try:
                records.append(await work(argument))
            except Stop as stop:
                records.append(stop)
            return [item if isinstance(item, Stop) else dump_record(item) for item in records]

        *lines, end = await step.run_async({"name": name, "preemptible": True}, run)
        _recording.set(None)
        _replayed.set(None)
        if not records:
            _replayed.set(_dbos().workflow_id)
            for line in lines:
                self.record(load_record(line))
        if isinstance(end, Stop):
            raise end
        return load_record(end)


def _reserve_step() -> Any:
    """The next step of the workflow; None outside a workflow, and inside a step."""
    dbos = _dbos()
    return dbos.reserve_step() if dbos.workflow_id and not dbos.step_id else None


def _dbos() -> Any:
    """The class DBOS. Raises ImportError if the package isn't installed."""
    try:
        return import_module("dbos").DBOS
    except ImportError:
        raise ImportError("Durable needs DBOS: pip install 'dbos>=3.4,<4'") from None
