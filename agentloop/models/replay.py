"""Keeps what models are asked and what they answer in files, and plays that again at no cost.

Copy with: events.py, store.py, transcript.py and what they name.

    llm = RecordingModel(ChatOpenAI("gpt-5-mini"), "run.jsonl")
    llm = ReplayModel("run.jsonl")  # answers from it; fails at the first request that differs
    llm = ReplayModel("session.jsonl")  # a session has what came since the reply before
    llm = ChatOpenAI("gpt-5-mini", dump=dump_to("bodies"))  # the bodies as they went, to look into
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from ..events import OnDelta, TextDeltaEvent, ThinkingDeltaEvent
from ..loop import ChatModel
from ..messages import (
    AssistantMessage,
    Message,
    Record,
    RunEnd,
    RunStart,
    Summary,
    SystemMessage,
    ToolChoice,
)
from ..records import dump_record, load_record
from ..store import read_log
from ..tools import Tool
from ..transcript import view, with_unique_ids

RECORDING = b'{"type":"recording","schema":1}\n'  # the first line of one
SHOWN = ("type", "tool_name", "tool_call_id", "is_error", "thinking", "tool_calls", "content")
DIFF_LINES = 60


def dump_to(folder: str | Path) -> Callable[[str, str], None]:
    """For the `dump=` of a model: writes each body into the folder, for the owner's eyes.

    They are 0001-request.json, 0001-response.json (.sse if it was a stream), and so on. The model
    has taken its key out of them.
    """

    def dump(request: str, response: str) -> None:
        Path(folder).mkdir(0o700, parents=True, exist_ok=True)
        number = len([*Path(folder).glob("*-request.json")]) + 1
        kind = "json" if response.lstrip()[:1] in "{[" else "sse"
        append(Path(folder, f"{number:04}-request.json"), request.encode())
        append(Path(folder, f"{number:04}-response.{kind}"), response.encode())

    return dump


def append(path: Path, content: bytes) -> None:
    """Add to a file that its owner alone can read."""
    path.touch(0o600)
    with path.open("ab") as file:
        file.write(content)


class RecordingModel:
    """Asks `llm`, and writes each request with its reply to a new file, for the owner's eyes.

    A line is in it before the reply is returned. A request that failed is not in it.
    FileExistsError: there is such a file.
    """

    def __init__(self, llm: ChatModel, path: str | Path) -> None:
        self.llm, self.path = llm, Path(path)
        self.path.touch(0o600, exist_ok=False)
        append(self.path, RECORDING)

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
        reply = await self.llm.ainvoke(messages, tools, tool_choice=tool_choice, on_delta=on_delta)
        reply = with_unique_ids(reply, set(), new=True)  # which the agent then has, too
        line = request_of(messages, tools, tool_choice)
        line["reply"] = from_json(dump_record(replace(reply, model=reply.model or self.model)))
        append(self.path, to_json(line, inf_nan_mode="strings") + b"\n")
        return reply


class ReplayMismatch(AssertionError):
    """A request is not the recorded one, or there are too many or too few."""


class RecordedRequest(NamedTuple):
    """A request, as text to compare, and what came of it.

    at: the reply's place in a session. side: it asked for a summary, with a prompt at its end that
    is in no session.
    """

    request: str
    reply: AssistantMessage
    at: int = 0
    side: bool = False


class ReplayModel:
    """Answers from a recording or from a session file, and compares each request with that in it.

    A request that differs raises ReplayMismatch.
    ignore: a regular expression; what it matches is not compared (times, temporary folders).

    Agents that share one have to ask in the recorded order. ValueError: the file is neither.
    """

    def __init__(self, path: str | Path, *, ignore: str | None = None) -> None:
        self.path, self.ignore = Path(path), ignore or "(?!)"
        lines = self.path.read_bytes().splitlines(keepends=True)
        self.log: list[Record] = []
        if lines[:1] == [RECORDING]:
            self.entries = [read_line(line) for line in lines[1:] if b'"reply":' in line]
        else:
            self.log = read_log(path)
            self.entries = read_session(self.log)
        self.number, self.end = 0, len(self.entries)  # of the last request, and of the last to come
        models = (entry.reply.model for entry in self.entries)
        self.model = next(filter(None, models), "replay")

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        number, name = self.number + 1, self.path.name
        if number > self.end:
            raise ReplayMismatch(f"request {number} is one more than there are in {name}")
        recorded, reply, _, side = self.entries[self.number]
        asked = request_of(messages, tools, tool_choice)
        if self.log:
            asked = request_of(tail_of(messages[: len(messages) - side]))
        texts = recorded, request_text(asked)
        old, new = (re.sub(self.ignore, "…", text, flags=re.M) for text in texts)
        if old != new:
            hint = " (there, a summary was asked for)" * side
            sides = old.split("\n"), new.split("\n")
            diff = difflib.unified_diff(*sides, "recorded", "asked", lineterm="", n=2)
            text = f"request {number} differs from {name}{hint}"
            raise ReplayMismatch("\n".join([text, *islice(diff, DIFF_LINES)]))
        self.number = number
        if on_delta and reply.thinking:
            on_delta(ThinkingDeltaEvent(reply.thinking))
        if on_delta and reply.text:
            on_delta(TextDeltaEvent(reply.text))
        return reply

    def assert_done(self) -> None:
        """Raise ReplayMismatch if recorded requests were not made, or not as they were."""
        if left := self.end - self.number:
            text = f"{left} of {len(self.entries)} requests in {self.path.name} were not made"
            raise ReplayMismatch(f"{text}; the first of them is request {self.number + 1}")


# ---- files


def read_line(line: bytes) -> RecordedRequest:
    """The request of a line in a recording, and its reply."""
    data = from_json(line)
    return RecordedRequest(request_text(data), load_record(to_json(data["reply"])))


def read_session(log: Sequence[Record]) -> list[RecordedRequest]:
    """The requests of a session, as far as it has them, and what was answered.

    Messages before the first run were loaded, and not asked for. A summary between two runs was
    asked for by hand: the next run begins with it. A Summary without a model is of turns that were
    left out.
    """
    in_a_run = not any(isinstance(record, RunStart) for record in log)
    entries: list[RecordedRequest] = []
    for at, record in enumerate(log):
        if isinstance(record, RunStart | RunEnd):
            in_a_run = isinstance(record, RunStart)
        reply = record
        if isinstance(record, Summary) and (record.model or record.usage):
            reply = AssistantMessage(record.content, usage=record.usage, model=record.model)
        if in_a_run and isinstance(reply, AssistantMessage):
            text = request_text(request_of(tail_of(view(log[:at]))))
            entries.append(RecordedRequest(text, reply, at, reply is not record))
    return entries


# ---- comparing


def tail_of(messages: Sequence[Message]) -> list[Message]:
    """The messages that came since the last reply. What is pinned first is no part."""
    tail: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage | SystemMessage):
            tail = []
        elif tail or not (message.extra or {}).get("pinned"):
            tail.append(message)
    return tail


def request_of(
    messages: Sequence[Message], tools: Sequence[Tool] = (), tool_choice: ToolChoice = "auto"
) -> dict[str, Any]:
    """A request as a recording has it."""
    return {
        "messages": [from_json(dump_record(message)) for message in messages],
        "tools": [(tool.name, tool.description, tool.parameters) for tool in tools],
        "tool_choice": tool_choice,
    }


def request_text(request: dict[str, Any]) -> str:
    """A request for people: its tools, then what a model is shown of each message."""
    lines = [f"tool_choice: {request['tool_choice']}"]
    tools = request["tools"]
    lines += [
        f"{name}: {about} {json.dumps(kinds, sort_keys=True)}" for name, about, kinds in tools
    ]
    for message in request["messages"]:
        lines += [f"{name}:\n{message[name]}" for name in SHOWN if message.get(name)]
    return "\n".join(lines)
