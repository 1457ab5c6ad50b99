"""The coding agent of the chat."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from agentloop import (
    Agent,
    AssistantMessage,
    ChatModel,
    Cost,
    Judgment,
    ModelError,
    Record,
    Request,
    Session,
    Tool,
    ToolCall,
    ToolError,
    Verdict,
    dump_record,
    events,
    load_record,
)
from agentloop.common.review import Decision
from agentloop.common.subagents import SubAgentRecord
from agentloop.messages import Unknown
from agentloop.mixins.approval import AlwaysAllow, Approval, PlanApproved
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.mcp import MCPTools
from agentloop.toolkits.skills import Skills
from agentloop.toolkits.subagent import as_tool

from .memory import Remembering
from .standing_approvals import EDITS

INTERRUPTED = "An error interrupted your answer here. Continue at this point."


READER = (
    "You read files of the user's project for another agent. Answer its question briefly, and name "
    "the files and lines that your answer is based on."
)


class CodingAgent(Skills, Approval, Session, Cost, Remembering, MCPTools, Agent):
    """An agent that asks before it acts. If it's interrupted, the text so far stays.

    workspace: the workspace of the file tools. If a change can't work, the model reads why, and
        you aren't asked.
    """

    workspace: Workspace | None = None

    def load_records(self) -> list[Record]:
        """Load the session. Its approvals have no effect, because somebody else may have written it."""
        return [expired(record) for record in super().load_records()]

    async def judge(self, judgment: Judgment) -> Judgment:
        call = judgment.call
        # subsequent calls may depend on the effects of the first; a sub-agent has its own files
        is_own_edit = judgment.agent is self and call.name in EDITS
        if self.workspace and is_own_edit and self.conversation.open_calls[0].call.id == call.id:
            trouble = await rehearse(self.workspace, call)
            if trouble:
                return judgment.or_stricter(Verdict.INVALID, trouble)
        return await super().judge(judgment)

    async def call_model(self, request: Request) -> AssistantMessage:
        self._partial = ""
        try:
            return await super().call_model(request)
        except (asyncio.CancelledError, ModelError) as error:
            if self._partial.strip():
                self.add(AssistantMessage(self._partial, stop_reason="interrupted"))
                if isinstance(error, ModelError):
                    self.add_note(INTERRUPTED)
            raise

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.TextDeltaEvent):
            self._partial += event.content
        super().emit(event)


def expired(record: Record) -> Record:
    """Turn an approval into a record of an unknown type, which has no effect; leave others alone."""
    return Unknown(json.loads(dump_record(record))) if approves(record) else record


def approves(record: Record) -> bool:
    """Whether a record is an approval, be it of a sub-agent's call."""
    if isinstance(record, SubAgentRecord):
        return approves(load_record(json.dumps(record.record)))
    if isinstance(record, Decision):
        return record.allowed
    return isinstance(record, AlwaysAllow | PlanApproved)


def reader(llm: ChatModel, root: Path) -> Tool:
    """Make a tool that runs a sub-agent, which can only read a directory."""
    files = [tool for tool in Workspace(root).tools if tool.read_only]
    agent = Agent(llm=llm, tools=files, system_prompt=READER)
    tool = as_tool(agent, "ask_reader", "Answers a question that requires reading many files")
    tool.read_only = True
    return tool


async def rehearse(workspace: Workspace, call: ToolCall) -> str:
    """Try a write or an edit, but change no file. Returns the error, or ""."""
    twin = Workspace(workspace.root, dry_run=True)
    twin.seen = dict(workspace.seen)
    for tool in twin.tools:
        if tool.name == call.name:
            try:
                await tool.execute(tool.validate(call.arguments))
            except ToolError as error:
                return str(error)
    return ""
