"""The coding agent of the command."""

from __future__ import annotations

import asyncio
from pathlib import Path

from .. import (
    Agent,
    AssistantMessage,
    Cost,
    ModelError,
    Request,
    Session,
    ToolCall,
    ToolError,
    events,
)
from ..common.gate import Judgment, Verdict
from ..mixins.approval import Approval
from ..toolkits.files import Workspace
from ..toolkits.mcp import MCPTools
from ..toolkits.skills import Skills
from .remembering import Remembering

CUT_OFF = "Your answer was cut off here by an error. Go on where it ends."


class CodingAgent(Skills, Approval, Session, Cost, Remembering, MCPTools, Agent):
    """An agent that asks before it acts. What it said before an answer was cut off is kept.

    workspace: where its tools change files. A change that cannot be made is not asked for.
    """

    workspace: Workspace | None = None

    async def judge(self, judgment: Judgment) -> Judgment:
        call = judgment.call
        is_first = self.conversation.open_calls[0].call.id == call.id  # the others may build on it
        if self.workspace and is_first:
            trouble = await rehearse(self.workspace, call)
            if trouble:
                return judgment.or_stricter(Verdict.INVALID, trouble)
        return await super().judge(judgment)

    async def call_model(self, request: Request) -> AssistantMessage:
        self._said = ""
        try:
            return await super().call_model(request)
        except (asyncio.CancelledError, ModelError) as error:
            if self._said.strip():
                self.add(AssistantMessage(self._said, stop_reason="interrupted"))
                if isinstance(error, ModelError):
                    self.add_note(CUT_OFF)
            raise

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.TextDeltaEvent):
            self._said += event.content
        super().emit(event)


class Rehearsal(Workspace):
    """A workspace whose tools change nothing."""

    def _change(self, target: Path, before: bytes, data: bytes) -> None:
        pass


async def rehearse(workspace: Workspace, call: ToolCall) -> str:
    """Return why a write or an edit cannot be made, or "" if it can. Nothing is changed."""
    twin = Rehearsal(workspace.root)
    twin.seen = dict(workspace.seen)
    for tool in (twin.write, twin.edit, twin.multi_edit):
        if tool.name == call.name:
            try:
                await tool.execute(tool.validate(call.arguments))
            except ToolError as error:
                return str(error)
    return ""
