"""What other modules must know of sub-agents: their records, their calls, their parent's hooks.

Copy with: the core, common/nested.py, common/records.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any, Literal

from ..loop import Loop
from ..messages import JSON, TAGS, AssistantMessage, ToolCall, ToolMessage, frozen, tag_of
from ..tools import FunctionTool, Tool, by_name
from ..transcript import (
    CallEntry,
    CallState,
    Conversation,
    Record,
    RoutedCall,
    is_complete,
    record_of,
)
from .nested import InnerCall
from .records import from_dict, to_dict


@frozen
class SubAgentCall(RoutedCall):
    """A sub-agent's call, as it appears in the log of its parent.

    `id` is unique in the parent's log: "a/b" is the call "b" of the sub-agent that the call "a"
    runs, and `parent_id` is then "a". A provider's ids have no "/". If you choose ids
    that do, no reply may have calls with the ids "a" and "a/b".

    own: the call in the sub-agent's log.
    runner: the parent's call that runs the sub-agent.
    agent: the sub-agent's name.
    """

    own: ToolCall = field(kw_only=True, repr=False)
    runner: ToolCall = field(kw_only=True, repr=False)
    agent: str = field(kw_only=True)

    def record_of(self, record: ToolMessage | CallEntry) -> Record:
        if isinstance(record, ToolMessage):
            inside = record_of(self.own, replace(record, tool_call_id=self.own.id))
        else:
            inside = record_of(self.own, replace(record, call_id=self.own.id))
        report = SubAgentRecord(self.runner.id, self.agent, to_dict(inside))
        return record_of(self.runner, report)


del TAGS[tag_of(SubAgentCall)]  # never a record


@frozen
class SubAgentRecord(CallEntry):
    """A record of a sub-agent's log, in the log of its parent.

    It changes the states of the sub-agent's calls here as it does in the sub-agent's own log. The
    parent's call may start again at any time, because it continues where these records end.

    call_id: the parent's call that runs the sub-agent.
    agent: the name of the sub-agent.
    record: the record, as `to_dict` in common/records.py writes it.
    """

    agent: str
    record: JSON = field(hash=False, repr=False)

    def apply(self, conversation: Conversation) -> None:
        runner = conversation.states.get(self.call_id)
        if runner is None or runner.result:
            return
        record = from_dict(self.record)
        about = conversation.states.get(self._id_here(id_of_call(record)))
        runner.status, runner.continues = "pending", True
        if isinstance(record, AssistantMessage):
            for call in record.tool_calls:
                state = self._add_call(conversation, call, runner, runner)
                state.status = "pending" if is_complete(record) else "cut_off"
        elif isinstance(record, InnerCall):
            if parent := conversation.states.get(self._id_here(record.parent_id)):
                self._add_call(conversation, record.call, parent, runner)
        elif about and isinstance(record, ToolMessage):
            about.end(replace(record, tool_call_id=about.call.id))
        elif about and isinstance(record, CallEntry):
            replace(record, call_id=about.call.id).apply(conversation)

    def _id_here(self, call_id: str) -> str:
        return f"{self.call_id}/{call_id}"

    def _add_call(
        self, conversation: Conversation, call: ToolCall, parent: CallState, runner: CallState
    ) -> CallState:
        """Add a call of the sub-agent to the calls that `parent` made."""
        call_id = self._id_here(call.id)
        presented = SubAgentCall(
            *(call_id, call.name, call.arguments, parent.call.id),
            own=call,
            runner=runner.call,
            agent=self.agent,
        )
        conversation.states[call_id] = state = CallState(presented)
        parent.inner += (state,)
        return state


def id_of_call(record: Record) -> str:
    """The id of the call that a record is about: "" unless it's a result or an entry."""
    if isinstance(record, ToolMessage):
        return record.tool_call_id
    return record.call_id if isinstance(record, CallEntry) else ""


class RunsBelow(Loop):
    """An agent that runs in a call of its parent.

    parent: the agent whose tool runs this agent.
    """

    parent: Loop


class SubAgentTool(FunctionTool[..., Any]):
    """A tool that runs a sub-agent. An interrupted call continues the sub-agent.

    agent: the template of the sub-agent.
    """

    agent: Loop

    @property
    def resumes(self) -> bool:
        return True


def find_tool_of(agent: Loop, call: ToolCall) -> Tool | None:
    """Find the tool of a call, be it the agent's or a sub-agent's; None if it isn't offered now."""
    if isinstance(call, SubAgentCall):
        runs = find_tool_of(agent, call.runner)
        if not isinstance(runs, SubAgentTool):
            return None
        agent = runs.agent
    return by_name(agent.toolset()).get(call.name)


def tools_below(agent: Loop) -> Iterator[Tool]:
    """Yield the tools of an agent's sub-agents, at any depth."""
    agents = [agent]
    for each in agents:  # the list grows
        for tool in each.toolset():
            if each is not agent:
                yield tool
            if isinstance(tool, SubAgentTool) and tool.agent not in agents:
                agents.append(tool.agent)


class FiresHooks:
    """An agent with hooks, which toolkits/subagent.py runs before and after a sub-agent."""

    async def fire_hooks(
        self, event: Literal["SubagentStart", "SubagentStop"], data: dict[str, object]
    ) -> object:
        """Run the hooks of an event."""
