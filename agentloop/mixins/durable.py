"""Durable execution in DBOS workflows: after a crash, a run continues at its last step.

Copy with: the core, common/records.py. Needs `pip install 'dbos>=3.4,<4'`.

    class DurableAgent(Agent, Durable): ...    # last: the other mixins run again in a replay

    @DBOS.workflow()
    async def answer(prompt: str) -> str:
        return await DurableAgent(llm=llm, tools=tools).query(prompt)

A model request is one step. A tool call consists of two steps: the first records that the tool is
about to start, and the second contains the result. A recovered workflow is replayed from the
beginning, and completed steps return their stored output: replies are not billed twice, and the log
is reconstructed with identical records. A call that had started, but lacks a result, may have had
effects. The call of an idempotent tool is executed again; otherwise the result for the model states
that the outcome is unknown. Outside of a workflow, and inside a step, this mixin has no effect.

Mixins after Durable are executed inside the steps, which a replay skips. A replay executes the
mixins before Durable again: their decisions must depend only on the log. The name of a request's
step contains the agent's classes in order and a checksum of the first task. If either has changed
before a replay, the run ends with DBOSUnexpectedStepError, which contains both names. The model and
the system prompt may change: new requests use the new values.

Time is not part of the log: in a recovered run, `max_seconds` and `approval_timeout` restart,
because the run could end during the replay otherwise. For limits relative to the original start,
use `SetWorkflowTimeout` and the timeout of `DBOS.recv_async`.

DBOS migrates an older database, and works with a newer database unless the database lacks a
feature, which is named in DBOS's error message. With Python 3.12 or newer, DBOS requires SQLite
3.42 or Postgres.

`interrupt` and messages from outside the workflow are not replayed: cancel with
`DBOS.cancel_workflow`, and receive messages with `DBOS.recv_async` (after a cancellation, it waits
until a message arrives). A workflow runs one agent at a time. For concurrent agents,
`workflow_tools` can start child workflows.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from typing import Any
from zlib import crc32

from ..common.records import dump_record, load_record
from ..events import Event
from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Result,
    Stop,
    ToolCall,
    ToolMessage,
)
from ..model import Request
from ..transcript import OUTCOME_UNKNOWN, Record, RunStart, ToolStart

# Inside a step: the agent that executes the step, and the list that collects the agent's records.
_recording = ContextVar[tuple[Loop, list[Record | Stop]] | None]("recording", default=None)
# The id of the replayed workflow, until the first step that is executed.
_replayed = ContextVar[str | None]("replayed", default=None)


class Durable(Loop):
    """Executes requests and calls as steps of the current DBOS workflow.

    Listeners receive no events during a replay. Code that iterates a `query_stream` inside a
    workflow is itself replayed, and receives all events.

    workflow_tools: names of tools that are executed in the workflow instead of a step, and may
        therefore start child workflows or wait for messages. These tools require `parallel=False`.
        A replay repeats the actions of these tools outside of steps.
    """

    workflow_tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for tool in self.tools:
            if tool.parallel and tool.name in self.workflow_tools:
                raise ValueError(
                    f"workflow tool {tool.name!r} requires parallel=False, because a replay "
                    "identifies steps by their order"
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
        for call in calls:  # in call order, independent of the order of execution
            if call.name in self.workflow_tools:
                self._reserved[call.id] = None, None
            else:
                self._reserved[call.id] = _reserve_step(), _reserve_step()
        return await super().call_tools(calls)

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        # A mixin that repeats a call requires new steps.
        start, end = self._reserved.pop(call.id, None) or (_reserve_step(), _reserve_step())
        if start is None:
            return await super().call_tool(call)
        started_before = True

        def begin() -> None:  # a replay skips it
            nonlocal started_before
            started_before = False

        await start.run_async({"name": f"start {call.name}"}, begin)
        may_repeat = any(tool.idempotent for tool in self.toolset() if tool.name == call.name)
        work = super().call_tool
        if started_before and not may_repeat:
            work = self._answer_unknown
        result: ToolMessage = await self._run_step(end, call.name, work, call)
        return result

    async def _answer_unknown(self, call: ToolCall) -> ToolMessage:
        """Answer a call that had started before the replay, without executing the call."""
        self.record(ToolStart(call.id))
        return call.answer(OUTCOME_UNKNOWN, is_error=True, origin="sealed")

    async def _run_step(self, step: Any, name: str, work: Any, argument: object) -> Any:
        """Execute `work(argument)` as a step, which a replay replaces by its stored records."""
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
    """Reserve the next step of the workflow; return None outside of a workflow or in a step."""
    dbos = _dbos()
    return dbos.reserve_step() if dbos.workflow_id and not dbos.step_id else None


def _dbos() -> Any:
    """Return the class DBOS. Raises ImportError if the package is not installed."""
    try:
        return import_module("dbos").DBOS
    except ImportError:
        raise ImportError("Durable requires DBOS: pip install 'dbos>=3.4,<4'") from None
