"""Lets a run in a DBOS workflow survive its process: a recovered run goes on at its last step.

Copy with: the core, common/records.py, common/store.py. Needs `pip install 'dbos>=3.4,<4'`.

    class DurableAgent(Agent, Durable): ...

    @DBOS.workflow()
    async def answer(prompt: str) -> str:
        return await DurableAgent(llm=llm, tools=tools).query(prompt)

Each model request is a step, and each tool call two: the first says that the tool is about to
start, the second has its result. A recovered workflow is replayed from its beginning, and a step
that had ended returns its output again: so no reply is paid twice, and the log becomes what it was.
A call that had started, and has no result, may have had effects: the model reads so, unless the
tool is idempotent; then it runs again. Outside of a workflow, and inside a step, this mixin does
nothing.

Mixins at its right work inside the steps, so a replay skips them. A replay runs those at its left
again: they have to decide the same from the same log. The name of a request's step holds the
agent's classes in their order and a checksum of the first task. If either has changed before a
replay, the run ends with DBOSUnexpectedStepError, which shows both names. The model and the system
prompt may change: new requests use the new ones.

Time is not in the log: `max_seconds` and `approval_timeout` begin anew in a recovered run, or it
would end before it has caught up. For a limit that counts from the very beginning, use
`SetWorkflowTimeout` and the timeout of `DBOS.recv_async`.

DBOS brings an older database up to date, and works with a newer one unless that lacks something,
which its error names. From Python 3.12 on it needs SQLite 3.42, or Postgres.

An `interrupt` or a message from outside is not replayed: cancel with `DBOS.cancel_workflow`, and
receive messages with `DBOS.recv_async` (after a cancel, it waits until a message comes). A workflow
runs one agent at a time. To run more, start child workflows, as `workflow_tools` may.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from typing import Any
from zlib import crc32

from ..common.records import dump_record, load_record
from ..common.store import without_attempt
from ..events import Event
from ..loop import Loop, Request
from ..messages import (
    AssistantMessage,
    Record,
    Result,
    RunStart,
    Stop,
    ToolCall,
    ToolMessage,
    ToolStart,
)
from ..transcript import OUTCOME_UNKNOWN

# In a step, the agent whose step it is and the list that gets what it records.
_recording = ContextVar[tuple[Loop, list[Record | Stop]] | None]("recording", default=None)
# The id of the workflow that is being replayed, until a step of it runs.
_replayed = ContextVar[str | None]("replayed", default=None)


class Durable(Loop):
    """Runs requests and calls as steps of the DBOS workflow that it is in.

    Listeners get no event of a replay. The reader of a `query_stream` in a workflow is itself
    replayed, and gets all events.

    workflow_tools: names of tools that run in the workflow and not in a step, so that they may
        start child workflows or wait for a message. They need `parallel=False`. A replay repeats
        what such a tool does outside of a step.
    """

    workflow_tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for tool in self.tools:
            if tool.parallel and tool.name in self.workflow_tools:
                raise ValueError(
                    f"workflow tool {tool.name!r} needs parallel=False: a replay finds steps by "
                    "their order"
                )
        self._reserved = dict[str, Any]()  # the steps of this turn's calls, by call id

    def record(self, record: Record) -> None:
        if isinstance(record, RunStart) and (step := _reserve_step()):
            run = f"{_dbos().workflow_id}:{step.step_id}"  # a replay has the same id
            record = replace(record, workflow_run=run)
            self.log = without_attempt(self.log, record)  # a session kept the first attempt
        super().record(record)
        recording = _recording.get()
        if recording and recording[0] is self:
            recording[1].append(record)

    def emit(self, event: Event) -> None:
        replayed = _replayed.get()
        if not replayed or replayed != _dbos().workflow_id:
            super().emit(event)
            return
        listeners, self.listeners = self.listeners, ()  # only the reader of a stream hears it
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
        self._reserved.clear()
        for call in calls:  # in this order, whichever call starts first
            if call.name in self.workflow_tools:
                self._reserved[call.id] = None, None
            else:
                self._reserved[call.id] = _reserve_step(), _reserve_step()
        return await super().call_tools(calls)

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        # A call that a mixin repeats has new steps.
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
        """Answer a call that had started before the replay, in place of running it."""
        self.record(ToolStart(call.id))
        return call.answer(OUTCOME_UNKNOWN, is_error=True, origin="sealed")

    async def _run_step(self, step: Any, name: str, work: Any, argument: object) -> Any:
        """Run `work(argument)` as a step. On replay, skip it and record what it recorded before."""
        records: list[Record | Stop] = []  # what is recorded, and then what is returned or its Stop

        async def run() -> list[bytes | Stop]:
            _recording.set((self, records))
            _replayed.set(None)
            try:
                records.append(await work(argument))
            except Stop as stop:
                records.append(stop)
            return [each if isinstance(each, Stop) else dump_record(each) for each in records]

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
    """Reserve the next step of the workflow; None outside of a workflow, and inside a step."""
    dbos = _dbos()
    return dbos.reserve_step() if dbos.workflow_id and not dbos.step_id else None


def _dbos() -> Any:
    """Return the class DBOS. Raises ImportError if the package is not installed."""
    try:
        return import_module("dbos").DBOS
    except ImportError:
        raise ImportError("Durable needs DBOS: pip install 'agentloop-micro[durable]'") from None
