"""Records a model's requests and replies in a file, and replays them for free.

Use recordings to test whole runs: a replay costs nothing, always does the same, and fails at the
first request that isn't the recorded one.

    llm = RecordingModel(ChatOpenAI("gpt-5.4-mini"), "run.jsonl")
    llm = ReplayModel("run.jsonl")
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic_core import from_json, to_json

from agentloop import (
    Agent,
    AssistantMessage,
    ChatModel,
    Message,
    ScriptedModel,
    TextDeltaEvent,
    ThinkingDeltaEvent,
    Tool,
    call,
    dump_record,
    load_record,
    tool,
)
from agentloop.events import OnDelta
from agentloop.messages import ToolChoice
from agentloop.transcript import with_unique_ids

RECORDING = b'{"type":"recording","schema":1}'  # the first line of a recording
VISIBLE = ("type", "tool_name", "tool_call_id", "is_error", "thinking", "tool_calls", "content")


class RecordingModel:
    """Forwards requests to `llm`, and records every request and reply in a new file.

    Only the owner can read the file. A line is written before you get the reply. Requests that
    fail are left out. Raises FileExistsError if the file exists.
    """

    def __init__(self, llm: ChatModel, path: str | Path) -> None:
        self.llm = llm
        self.model = llm.model
        self.path = Path(path)
        self.path.touch(0o600, exist_ok=False)
        self.path.write_bytes(RECORDING + b"\n")

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        reply = await self.llm.ainvoke(messages, tools, tool_choice=tool_choice, on_delta=on_delta)
        reply = with_unique_ids(reply, set(), new=True)  # the agent receives the same ids
        line = request_of(messages, tools, tool_choice)
        line["reply"] = from_json(dump_record(replace(reply, model=reply.model or self.model)))
        with self.path.open("ab") as file:
            file.write(to_json(line, inf_nan_mode="strings") + b"\n")
        return reply


class ReplayMismatch(AssertionError):
    """A request differs from the recording, or the number of requests differs."""


class ReplayModel:
    """Replays recorded replies. If a request isn't the recorded one, it raises ReplayMismatch.

    ignore: a regular expression for text that may differ (times, temporary folders).

    Agents that share a recording must send their requests in the recorded order. Raises ValueError
    if the file is not a recording.
    """

    def __init__(self, path: str | Path, *, ignore: str = "(?!)") -> None:
        self.path = Path(path)
        self.ignore = ignore
        self.number = 0  # requests so far
        first, *lines = self.path.read_bytes().split(b"\n")
        if first != RECORDING:
            raise ValueError(f"{path} is not a recording: use RecordingModel(llm, path) first")
        self.requests = list[dict[str, Any]]()
        for line in lines:
            if b'"reply":' in line:
                self.requests.append(from_json(line))
        models: list[str | None] = [request["reply"].get("model") for request in self.requests]
        self.model = next(filter(None, models), "replay")

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        number = self.number + 1
        name = self.path.name
        if number > len(self.requests):
            raise ReplayMismatch(f"request {number} is one more than recorded in {name}")
        recorded = self.requests[self.number]
        old = self._comparable(recorded)
        new = self._comparable(request_of(messages, tools, tool_choice))
        diff = [*difflib.unified_diff(old, new, "recorded", "actual", lineterm="", n=2)]
        if diff:
            raise ReplayMismatch("\n".join([f"request {number} differs from {name}", *diff[:60]]))
        self.number = number
        reply: AssistantMessage = load_record(to_json(recorded["reply"]))
        if on_delta and reply.thinking:
            on_delta(ThinkingDeltaEvent(reply.thinking))
        if on_delta and reply.text:
            on_delta(TextDeltaEvent(reply.text))
        return reply

    def _comparable(self, request: dict[str, Any]) -> list[str]:
        """The lines of a request that are compared."""
        return re.sub(self.ignore, "…", request_text(request), flags=re.M).split("\n")

    def assert_done(self) -> None:
        """Raise ReplayMismatch if recorded requests remain."""
        left = len(self.requests) - self.number
        if left:
            raise ReplayMismatch(
                f"{left} of {len(self.requests)} requests in {self.path.name} were not made; "
                f"the first of them is request {self.number + 1}"
            )


def request_of(
    messages: Sequence[Message], tools: Sequence[Tool], tool_choice: ToolChoice
) -> dict[str, Any]:
    """Write a request in the format of a recording."""
    return {
        "messages": [from_json(dump_record(message)) for message in messages],
        "tools": [(tool.name, tool.description, tool.parameters) for tool in tools],
        "tool_choice": tool_choice,
    }


def request_text(request: dict[str, Any]) -> str:
    """Write a request for people: the tools, then what a model gets of the messages."""
    lines = [f"tool_choice: {request['tool_choice']}"]
    for name, description, schema in request["tools"]:
        lines.append(f"{name}: {description} {json.dumps(schema, sort_keys=True)}")
    for message in request["messages"]:
        lines += [f"{name}:\n{message[name]}" for name in VISIBLE if message.get(name)]
    return "\n".join(lines)


def main() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    with TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl")
        script = ScriptedModel(call("add", a=2, b=3), "It is 5.")
        print(Agent(llm=RecordingModel(script, path), tools=[add]).run_sync("2 + 3?"))
        print(Agent(llm=ReplayModel(path), tools=[add]).run_sync("2 + 3?"))
        try:
            Agent(llm=ReplayModel(path), tools=[add]).run_sync("2 + 4?")
        except ReplayMismatch as error:
            print(error)


if __name__ == "__main__":
    main()
