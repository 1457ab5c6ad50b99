"""Sub-agents as tools: a separate log per sub-agent, and immediate accounting of its usage.

Copy with: the core, common/records.py, common/subagents.py.

    researcher = Agent(llm=small, tools=[search], system_prompt="Find it, and name the source.")
    agent = Agent(llm=llm, tools=[as_tool(researcher, "research", "Looks something up")])

Every call runs a fork of the sub-agent with an empty log, so that calls can run concurrently. A
sub-agent's requests pass through its parent's `call_model`, so the parent's limits apply. After
every request, the parent records a `SideRequest` with the number of tool calls in the reply. The
parent's log also contains all records of a sub-agent, as a `SubAgentRecord` each. Cancelling a
parent cancels its sub-agents. Approval checks (`Approval`, hooks) apply to a sub-agent only if its
own class includes the mixins. Only the sub-agent's own `approval_callback` can answer the approval
requests of a sub-agent.

    class Boss(SubAgents, Agent):      # defaults without `SubAgents`: 4 at a time, 3 levels
        max_sub_agents = 8
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Annotated, cast
from weakref import WeakValueDictionary

from pydantic import PositiveInt

from ..common.records import to_dict
from ..common.subagents import FiresHooks, SubAgentRecord
from ..depends import Depends, current_agent, current_call
from ..errors import ToolError
from ..events import Event, SubAgentEvent
from ..loop import Loop, Request
from ..messages import AssistantMessage, Record, SideRequest, ToolCall
from ..run import ANSWERED
from ..tools import Tool, tool

Parent = Annotated[Loop, Depends(current_agent)]
HOW_TO_APPROVE = "set an approval_callback, or approval_rules that allow the call, on the sub-agent"
Call = Annotated[ToolCall, Depends(current_call)]


def as_tool(agent: Loop, name: str, description: str) -> Tool:
    """Return a tool that runs a fork of an agent on a prompt and returns the answer."""

    async def ask(prompt: str, parent: Parent, call: Call) -> str:
        return await run_sub_agent(agent, prompt, name, parent, call)

    return tool(description, name=name)(ask)


class SubAgents(Loop):
    """Limits the number of sub-agents. The defaults also apply to agents without this mixin.

    max_sub_agents: maximum number of sub-agents of this agent that run concurrently.
    max_sub_agent_depth: maximum number of levels of sub-agents, counted from the root agent. Only
        the root agent's setting applies.
    """

    max_sub_agents: PositiveInt = 4
    max_sub_agent_depth: PositiveInt = 3


async def run_sub_agent(agent: Loop, prompt: str, name: str, parent: Loop, call: ToolCall) -> str:
    """Run a fork of `agent` on a prompt; return the answer. Raises ToolError without an answer."""
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
        cls=sub_agent_class(cls),
        parent=parent,
        depth=depth,
        deepest=deepest,
        report=report,
        listeners=listeners,
    )
    hooks = parent if isinstance(parent, FiresHooks) else None
    async with _slots.setdefault(id(parent), asyncio.Semaphore(caps.max_sub_agents)):
        if hooks:
            await hooks.fire_hooks("SubagentStart", {"agent_type": name, "prompt": prompt})
        try:
            result = await child.run(prompt)
        finally:
            if hooks:
                await hooks.fire_hooks("SubagentStop", {"agent_type": name})
    if result.stop_reason in ANSWERED:
        return str(result)
    problem = result.text
    if result.stop_reason == "needs_approval":
        names = ", ".join(call.name for call in result.pending)
        problem = f"Approval is required for {names}: {HOW_TO_APPROVE}. {problem}"
    raise ToolError(f"{name} ended without an answer: {result.stop_reason}. {problem}")


# Enforces `max_sub_agents`, by `id(parent)`. Entries exist while a sub-agent runs or waits.
_slots = WeakValueDictionary[int, asyncio.Semaphore]()


class SubAgent(Loop):
    """Sends requests through the parent's `call_model`, and records everything in the parent.

    parent: the agent whose tool runs this sub-agent.
    depth: number of agents above this one.
    deepest: maximum number of levels.
    report: records a record of this agent in the parent's log.
    """

    parent: Loop
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


@cache
def sub_agent_class(cls: type) -> type[SubAgent]:
    """Return a subclass with `SubAgent` before the base `Loop`, to intercept all requests."""
    bases = (SubAgent,) if cls is Loop else (cls, SubAgent)
    return cast(type[SubAgent], type(cls.__name__, bases, {}))


@dataclass(frozen=True)
class Answering:
    """A model for a single request, whose reply is the result of a function."""

    model: str
    answer: Callable[[], Awaitable[AssistantMessage]]

    async def ainvoke(self, *_: object, **__: object) -> AssistantMessage:
        return await self.answer()
