"""Sub-agents as tools: they work with a log of their own, and what they use counts as it happens.

Copy with: the core, common/subagents.py.

    researcher = Agent(llm=small, tools=[search], system_prompt="Find it, and say where.")
    agent = Agent(llm=llm, tools=[as_tool(researcher, "research", "Looks something up")])

Each call runs a fork of its agent, with an empty log, so calls run side by side. Each request of a
sub-agent passes through its parent's `call_model`, so the parent's limits hold for it. After it,
the parent records a `SideRequest`, which says how many tool calls the reply asked for. Cancelling a
parent cancels its sub-agents. Gates (`Approval`, hooks) hold for a sub-agent if its own class has
them. What they ask, only an `approval_callback` of its own can answer.

    class Boss(SubAgents, Agent):      # without `SubAgents` it is 4 at once, and 3 levels
        sub_agents_at_once = 8
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, cast
from weakref import WeakValueDictionary

from pydantic import PositiveInt

from ..common.subagents import FiresHooks
from ..depends import Depends, current_agent, current_call
from ..errors import ToolError
from ..events import Event, SubAgentEvent
from ..loop import Loop, Request
from ..messages import AssistantMessage, SideRequest, ToolCall
from ..runs import ANSWERED
from ..tools import Tool, tool

Parent = Annotated[Loop, Depends(current_agent)]
Call = Annotated[ToolCall, Depends(current_call)]


def as_tool(agent: Loop, name: str, description: str) -> Tool:
    """Make a tool that gives a prompt to a fork of an agent, and returns its answer."""

    async def ask(prompt: str, parent: Parent, call: Call) -> str:
        return await run_sub_agent(agent, prompt, name, parent, call)

    return tool(description, name=name)(ask)


class SubAgents(Loop):
    """Says how many sub-agents there may be; agents without this mixin have its defaults.

    sub_agents_at_once: how many sub-agents of this agent run at a time.
    sub_agents_deep: how many levels of sub-agents there may be, counted from the first agent, which
        is nobody's sub-agent. Only that agent's setting counts.
    """

    sub_agents_at_once: PositiveInt = 4
    sub_agents_deep: PositiveInt = 3


async def run_sub_agent(agent: Loop, prompt: str, name: str, parent: Loop, call: ToolCall) -> str:
    """Run a fork of `agent` on a prompt; return its answer. Raises ToolError if it has none."""
    caps = parent if isinstance(parent, SubAgents) else SubAgents
    depth, deepest = 1, caps.sub_agents_deep
    if isinstance(parent, SubAgent):
        depth, deepest = parent.depth + 1, parent.deepest
    if depth > deepest:
        raise ToolError(f"Sub-agents are {deepest} deep already: do it yourself.")

    def pass_on(event: Event) -> None:
        parent.emit(SubAgentEvent(name, call.id, event))

    listeners = [*agent.listeners]
    if parent.listened:
        listeners.append(pass_on)
    child = agent.fork(
        at=0,
        cls=sub_agent_class(type(agent)),
        parent=parent,
        depth=depth,
        deepest=deepest,
        listeners=listeners,
    )
    hooks = parent if isinstance(parent, FiresHooks) else None
    async with _slots.setdefault(id(parent), asyncio.Semaphore(caps.sub_agents_at_once)):
        if hooks:
            await hooks.fire_hooks("SubagentStart", {"agent_type": name, "prompt": prompt})
        try:
            result = await child.run(prompt)
        finally:
            if hooks:
                await hooks.fire_hooks("SubagentStop", {"agent_type": name})
    if result.stop_reason in ANSWERED:
        return str(result)
    raise ToolError(f"{name} ended without an answer: {result.stop_reason}. {result.text}")


# Keeps to `sub_agents_at_once`: by `id(parent)`, while a sub-agent of that parent runs or waits.
_slots = WeakValueDictionary[int, asyncio.Semaphore]()


class SubAgent(Loop):
    """Sends each request through its parent's `call_model`, and records it there.

    parent: the agent whose tool runs this one.
    depth: how many agents are above it.
    deepest: how many levels there may be.
    """

    parent: Loop
    depth: int
    deepest: int

    async def call_model(self, request: Request) -> AssistantMessage:
        model = request.model or self.llm
        itself = Answering(model.model, partial(super().call_model, request))
        reply = await self.parent.call_model(replace(request, purpose="subagent", model=itself))
        self.parent.add(SideRequest(reply.usage, reply.model, tool_calls=len(reply.tool_calls)))
        return reply


_classes = dict[type[Loop], type[SubAgent]]()  # by the class of the agent


def sub_agent_class(cls: type[Loop]) -> type[SubAgent]:
    """Return the class with `SubAgent` next to its base `Loop`, where all of its requests pass."""
    if cls not in _classes:
        bases = (SubAgent,) if cls is Loop else (cls, SubAgent)
        _classes[cls] = cast(type[SubAgent], type(cls.__name__, bases, {}))
    return _classes[cls]


@dataclass(frozen=True)
class Answering:
    """A model for one request: a function answers it."""

    model: str
    answer: Callable[[], Awaitable[AssistantMessage]]

    async def ainvoke(self, *_: object, **__: object) -> AssistantMessage:
        return await self.answer()
