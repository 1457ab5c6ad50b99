"""Sub-agents as tools: each has its own log, and its usage counts for its parent at once.

Copy with: the core, common/decides.py, common/gate.py, common/nested.py, common/records.py,
common/review.py, common/subagents.py.

    researcher = Agent(llm=small, tools=[search], system_prompt="Find it, and name the source.")
    agent = Agent(llm=llm, tools=[as_tool(researcher, "research", "Looks something up")])

Each call runs a fork of the sub-agent, which starts with an empty log, so calls can run at the same
time. If you cancel a parent, its sub-agents are cancelled, too. A sub-agent works under its
parent's rules:

- Its requests pass through its parent's `call_model`, so the parent's limits hold. After every
  request, the parent records a `SideRequest` with the usage and the number of tool calls.
- Its calls are judged by its parent's gates (`Approval`, `Hooks`), and by its own if it has any.

If a sub-agent asks for approval, or asks the user, its parent's run ends like the sub-agent's, and
the parent's `pending` lists the sub-agent's call. Decide or answer on the parent; `run()` then
continues the sub-agent. This works at any depth, and in another process if the parent has a
session, because the parent's log contains each record of a sub-agent, as a `SubAgentRecord`. It's
also how a sub-agent continues after its process was killed: nothing that has run is repeated.

    result = await agent.run("Tidy up.")                 # "needs_approval"
    agent.decide(result.pending[0].id, "allow")          # the call of a sub-agent
    result = await agent.run()

    class Boss(SubAgents, Agent):      # defaults without `SubAgents`: 4 at a time, 3 levels
        max_sub_agents = 8
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Annotated, cast
from weakref import WeakKeyDictionary

from pydantic import PositiveInt

from ..common.gate import Gate
from ..common.records import from_dict, to_dict
from ..common.subagents import FiresHooks, RunsBelow, SubAgentRecord, SubAgentTool
from ..content import describe_error
from ..depends import Depends, current_agent, current_call
from ..errors import ToolError
from ..events import Event, SubAgentEvent
from ..loop import Loop
from ..messages import AssistantMessage, Result, Stop, ToolCall
from ..model import Request
from ..tools import Tool
from ..transcript import Record, RunEnd, SideRequest, can_continue, with_calls_made

Parent = Annotated[Loop, Depends(current_agent)]
Call = Annotated[ToolCall, Depends(current_call)]
ASKING = ("needs_approval", "needs_answer")  # stop reasons of a sub-agent that continues later


def as_tool(agent: Loop, name: str, description: str) -> Tool:
    """Make a tool of an agent: `tools=[as_tool(researcher, "research", "Look something up")]`.

    The model passes a prompt. Each call runs a fork of the agent, which starts with an empty log,
    and the fork's answer is the result.

    agent: the sub-agent, with a model, tools, a prompt and limits of its own.
    name, description: what the model reads to decide when to call the tool.

    `SubAgents` limits how many run at the same time, and how deep they may nest.
    """
    if not isinstance(cast(object, agent), Loop):
        raise TypeError(f"as_tool() takes one agent, not {agent!r:.80}: make a tool of each")

    async def ask(prompt: str, parent: Parent, call: Call) -> str:
        return await run_sub_agent(agent, prompt, name, parent, call)

    tool = SubAgentTool(ask, description, name=name)
    tool.agent = agent
    return tool


class SubAgents(Loop):
    """Limits how many sub-agents there are. If an agent lacks this mixin, the defaults hold.

    max_sub_agents: how many sub-agents of this agent may run at the same time.
    max_sub_agent_depth: how many levels of sub-agents there may be below the root agent. Only the
        root agent's setting counts.
    """

    max_sub_agents: PositiveInt = 4
    max_sub_agent_depth: PositiveInt = 3


async def run_sub_agent(agent: Loop, prompt: str, name: str, parent: Loop, call: ToolCall) -> str:
    """Run a fork of `agent` on a prompt, or continue it. Returns its answer.

    A tool that calls this starts again when the sub-agent continues, though it isn't idempotent: so
    it must have no effects of its own.

    Raises Stop if it asks for approval or asks the user, and ToolError if it ends but has no
    answer.
    """
    caps = parent if isinstance(parent, SubAgents) else SubAgents
    depth, deepest = 1, caps.max_sub_agent_depth
    if isinstance(parent, SubAgent):
        depth, deepest = parent.depth + 1, parent.deepest
    if depth > deepest:
        raise ToolError(
            f"The limit of {deepest} levels of sub-agents is reached: do the task yourself."
        )

    def pass_on(event: Event) -> None:
        parent.emit(SubAgentEvent(name, call.id, event))

    def report(record: Record) -> None:
        parent.record(SubAgentRecord(call.id, name, to_dict(record)))

    cls: type = type(agent)
    listeners = [*agent.listeners]
    if parent.listened:
        listeners.append(pass_on)
    child = agent.fork(
        at=0,
        cls=sub_agent_class(cls, is_judged=bool(gates_of(parent))),
        parent=parent,
        depth=depth,
        deepest=deepest,
        report=report,
        listeners=listeners,
    )
    for record in earlier_records(parent, call):
        child.log.append(record)
    hooks = parent if isinstance(parent, FiresHooks) else None
    run = parent.active_run or parent
    async with _slots.setdefault(run, asyncio.Semaphore(caps.max_sub_agents)):
        if hooks:
            await hooks.fire_hooks("SubagentStart", {"agent_type": name, "prompt": prompt})
        try:
            result = await start_or_continue(child, prompt)
        except Exception as error:
            if parent.on_tool_error == "raise" or not parent.conversation.state_of(call).inner:
                raise
            problem = describe_error(error)
        else:
            if result.answered:
                return result.text
            if result.stop_reason in ASKING:
                raise Stop(result.stop_reason)
            problem = f"{name} ended without an answer: {result.stop_reason}. {result.text}"
        finally:
            if hooks:
                await hooks.fire_hooks("SubagentStop", {"agent_type": name})
    raise ToolError(with_calls_made(parent.conversation.state_of(call), problem))


async def start_or_continue(child: Loop, prompt: str) -> Result:
    """Run a sub-agent. If the same call has run it before, its log has the records of that."""
    if not child.messages:
        return await child.run(prompt)
    end = child.log[-1]
    if isinstance(end, RunEnd) and not can_continue(child.conversation):
        return Result(end.text, stop_reason=end.stop_reason)
    return await child.run()


def earlier_records(parent: Loop, call: ToolCall) -> list[Record]:
    """The records of the sub-agent from earlier times that this call ran it."""
    records = list[Record]()
    for record in reversed(parent.log):
        if isinstance(record, SubAgentRecord) and record.call_id == call.id:
            records.append(from_dict(record.record))
        elif isinstance(record, AssistantMessage) and call in record.tool_calls:
            break
    return records[::-1]


_slots = WeakKeyDictionary[object, asyncio.Semaphore]()  # for `max_sub_agents`, by the parent's run


class SubAgent(RunsBelow):
    """Sends requests through the parent's `call_model`, and records everything in the parent.

    depth: how many agents are above this one.
    deepest: how many levels there may be.
    report: puts a record of this agent into the parent's log.
    """

    depth: int
    deepest: int
    report: Callable[[Record], None]

    def record(self, record: Record) -> None:
        super().record(record)
        self.report(record)

    async def call_model(self, request: Request) -> AssistantMessage:
        model = request.model or self.llm
        itself = Answering(model.model, partial(super().call_model, request))
        reply = await self.parent.call_model(replace(request, purpose="subagent", model=itself))
        calls = len(reply.tool_calls)
        self.parent.add(SideRequest(tool_calls=calls, usage=reply.usage, model=reply.model))
        return reply


class JudgedSubAgent(SubAgent, Gate):
    """A sub-agent whose calls the gates of the agents above it judge, too."""

    def judging_agents(self) -> Sequence[Gate]:
        return gates_of(self)


def gates_of(agent: Loop) -> list[Gate]:
    """The agents that have gates, from the root agent down to this one."""
    gates = gates_of(agent.parent) if isinstance(agent, SubAgent) else []
    return [*gates, agent] if isinstance(agent, Gate) else gates


@lru_cache(256)  # a program may make a class for each request
def sub_agent_class(cls: type, *, is_judged: bool) -> type[SubAgent]:
    """Make a subclass that has `SubAgent` right before `Loop`, where all requests pass."""
    below = JudgedSubAgent if is_judged else SubAgent
    bases = (below,) if cls is Loop else (cls, below)
    return cast(type[SubAgent], type(cls.__name__, bases, {}))


@dataclass(frozen=True)
class Answering:
    """A model for a single request. Its reply is what a function returns."""

    model: str
    answer: Callable[[], Awaitable[AssistantMessage]]

    async def ainvoke(self, *_: object, **__: object) -> AssistantMessage:
        return await self.answer()
