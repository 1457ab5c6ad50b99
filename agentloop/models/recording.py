"""Records what a model is asked and what it answers, in a file that `ReplayModel` plays again.

Copy with: messages.py, events.py, errors.py, transcript.py.

    llm = RecordingModel(ChatOpenAI("gpt-5-mini"), "run.jsonl")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from ..errors import ModelError
from ..events import OnDelta
from ..messages import AssistantMessage, Message, ToolChoice, dump_record
from ..transcript import with_unique_ids

if TYPE_CHECKING:
    from ..loop import ChatModel
    from ..tools import Tool


class RecordingModel:
    """Asks `llm`, and writes each request with its reply, or its ModelError, to a new file.

    The file is for the owner's eyes; a line is in it before the reply is returned.
    FileExistsError: there is such a file.
    """

    def __init__(self, llm: ChatModel, path: str | Path) -> None:
        self.llm, self.path = llm, Path(path)
        self._write({"type": "recording", "schema": 1}, "xb")

    @property
    def model(self) -> str:
        return self.llm.model

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        asked: dict[str, Any] = {
            "messages": [from_json(dump_record(message)) for message in messages],
            "tools": [(tool.name, tool.description, tool.parameters) for tool in tools],
            "tool_choice": tool_choice,
        }
        try:
            reply = await self.llm.ainvoke(
                messages, tools, tool_choice=tool_choice, on_delta=on_delta
            )
        except ModelError as error:
            self._write(asked | {"error": type(error).__name__, "text": str(error)})
            raise
        reply = with_unique_ids(reply, set(), fresh=True)  # so that a replay gives the same ids
        reply = replace(reply, model=reply.model or self.model)
        self._write(asked | {"reply": from_json(dump_record(reply))})
        return reply

    def _write(self, data: dict[str, Any], mode: str = "ab") -> None:
        with open(self.path, mode, opener=partial(os.open, mode=0o600)) as file:
            file.write(to_json(data, inf_nan_mode="strings") + b"\n")
