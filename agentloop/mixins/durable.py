"""Makes a run in a DBOS workflow survive its process: a recovered run goes on at its last step.

Copy with: the core, records.py, store.py. Needs `pip install 'dbos>=3.4,<4'`.

    class DurableAgent(Agent, Durable): ...

    @DBOS.workflow()
    async def answer(prompt: str) -> str:
        return await DurableAgent(llm=llm, tools=tools).query(prompt)

Each model request is a step, and each tool call two: one says that the tool is about to start, the
other has its result. A recovered workflow is played again from its beginning, and a step that has
ended gives its output again: so no reply is paid twice, and the log becomes what it was. A call
that had started, and has no result, may have had effects: it is answered so, unless its tool is
idempotent. Outside a workflow, and inside a step, this mixin does nothing.

Mixins at its right work inside the steps, and are not played again. Those at its left are: they
have to decide the same from the same log. Time is not in the log: `max_seconds` and
`approval_timeout` count anew in a recovered run, so use `SetWorkflowTimeout` and the timeout of
`DBOS.recv_async`. What comes from outside (`interrupt`, messages) is not played again: cancel with
`DBOS.cancel_workflow`, and let messages come by `DBOS.recv_async`. A workflow runs one agent at a
time; more of them are child workflows, which `workflow_tools` may start.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from typing import Any

from ..events import Listener
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
from ..records import dump_record, load_record
from ..store import forget_attempt
from ..transcript import OUTCOME_UNKNOWN

# Of this task: the agent whose step it is, and the records of that step; or, behind a step that was
# played again, the id of the workflow.
_state: ContextVar[Any] = ContextVar("durable", default="")


class Durable(Loop):
    """Runs requests and calls as steps of the DBOS workflow that it is in.

    Listeners hear what happens, and not what is played again; the reader of a `query_stream` in a
    workflow is played again with it, and gets all events.

    workflow_tools: names of tools that run in the workflow and not in a step, so that they may
        start child workflows or wait for a message. They need `parallel=False`. What such a tool
        does outside of a step is done again when the run is played again.
    """

    workflow_tools: Collection[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for tool in self.tools:
            if tool.parallel and tool.name in self.workflow_tools:
                raise ValueError(
                    f"workflow tool {tool.name!r} needs parallel=False: steps go by their order"
                )
        self._reserved: dict[str, Any] = {}  # of this turn's calls, by call id

    def record(self, record: Record) -> None:
        if isinstance(record, RunStart) and (step := _reserve_step()):
            run = f"{_dbos().workflow_id}:{step.step_id}"  # the same when it is played again
            record = replace(record, extra={**(record.extra or {}), "workflow_run": run})
            forget_attempt(self.log, record)  # which a session has
            self.listeners = _Unreplayed(self.listeners[:])  # a slice has all of them
        super().record(record)
        if _state.get()[:1] == (self,):
            _state.get()[1].append(record)

    async def call_model(self, request: Request) -> AssistantMessage:
        work = super().call_model(request)
        reply: AssistantMessage = await self._once(
            _reserve_step(), f"model {request.purpose}", work
        )
        return reply

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        self._reserved = {  # in call order, whichever call starts first
            call.id: (None, None)
            if call.name in self.workflow_tools
            else (_reserve_step(), _reserve_step())
            for call in calls
        }
        return await super().call_tools(calls)

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        # A call that a mixin repeats has new steps.
        start, end = self._reserved.pop(call.id, None) or (_reserve_step(), _reserve_step())
        may_run = [tool.idempotent for tool in self.toolset() if tool.name == call.name]
        if start:
            await start.run_async({"name": f"start {call.name}"}, lambda: may_run.append(True))
        work = super().call_tool(call) if any(may_run) or not start else self._leave_unknown(call)
        result: ToolMessage = await self._once(end, call.name, work)
        return result

    async def _leave_unknown(self, call: ToolCall) -> ToolMessage:
        self.record(ToolStart(call.id))
        return ToolMessage(call.id, call.name, OUTCOME_UNKNOWN, True)

    async def _once(self, step: Any, name: str, work: Coroutine[Any, Any, Record]) -> Any:
        """What the work gives. Played again, it is not done: the log gets what it got before."""
        if step is None:
            return await work
        made, state = list[Record](), _dbos().workflow_id

        async def once() -> Any:
            nonlocal state
            state = ""
            _state.set((self, made))
            given, stop = "", None
            try:
                given = dump_record(await work).decode()
            except Stop as end:
                stop = end
            return [dump_record(record).decode() for record in made], given, stop

        try:
            lines, given, stop = await step.run_async({"name": name, "preemptible": True}, once)
        finally:
            work.close()
        _state.set(state)
        for line in lines[len(made) :]:
            self.record(load_record(line))
        if stop:
            raise stop
        return load_record(given)


class _Unreplayed(tuple[Listener, ...]):
    """Listeners that hear nothing of what is played again."""

    def __iter__(self) -> Any:
        return iter(()) if _state.get() == _dbos().workflow_id else super().__iter__()


def _reserve_step() -> Any:
    """The next step of a workflow; None outside of one, and inside a step."""
    dbos = _dbos()
    return dbos.reserve_step() if dbos.workflow_id and not dbos.step_id else None


def _dbos() -> Any:
    try:
        return import_module("dbos").DBOS
    except ImportError:
        raise ImportError("Durable needs DBOS: pip install 'dbos>=3.4,<4'") from None
