"""Records what a model is asked and answers, and plays it again: at no cost, with no network.

Copy with: messages.py, events.py, errors.py, transcript.py, store.py, saved.py.

    llm = RecordingModel(ChatOpenAI("gpt-5-mini"), "run.jsonl")  # asks, and keeps all of it
    llm = ReplayModel("run.jsonl")                               # says the same, and asks nobody

A recording has each request whole. A session has what came since the reply before: results,
prompts. That is what a replay compares.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic_core import from_json, to_json

from ..errors import ModelError
from ..events import OnDelta, TextDeltaEvent, ThinkingDeltaEvent
from ..messages import (
    AssistantMessage,
    Message,
    Record,
    RunStart,
    Summary,
    SystemMessage,
    ToolChoice,
    dump_record,
    from_dict,
    to_dict,
)
from ..saved import read_log
from ..transcript import View

if TYPE_CHECKING:
    from ..loop import ChatModel
    from ..tools import Tool

logger = logging.getLogger("agentloop")

RECORDING = {"type": "recording", "schema": 1}  # its first line
SHOWN = ("type", "tool_name", "tool_call_id", "is_error", "thinking", "tool_calls", "content")
DIFF_LINES = 60

JSON: TypeAlias = dict[str, Any]


class ReplayMismatch(AssertionError):
    """A request is not the recorded one: its `number` from 1, the message's `index`, the `diff`."""

    def __init__(self, text: str, number: int, index: int | None = None, diff: str = "") -> None:
        super().__init__(f"{text}\n{diff}" if diff else text)
        self.number, self.index, self.diff = number, index, diff


class Entry(NamedTuple):
    """A request and what came of it.

    at: the reply's place in a session. side: it asked for a summary, with a prompt at its end that
    is in no session.
    """

    request: list[JSON]
    answer: AssistantMessage | ModelError
    at: int = 0
    side: bool = False


class RecordingModel:
    """Asks `llm`, and writes each request with its reply, or its ModelError, to a new file.

    The file is for the owner's eyes; a line is in it before the reply is returned.
    FileExistsError: there is such a file.
    """

    def __init__(self, llm: ChatModel, path: str | Path) -> None:
        self.llm, self.path = llm, Path(path)
        self._write(RECORDING, "xb")

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
        asked = {"request": [offer_of(tools, tool_choice), *map(shown_of, messages)]}
        try:
            reply = await self.llm.ainvoke(
                messages, tools, tool_choice=tool_choice, on_delta=on_delta
            )
        except ModelError as error:
            self._write(asked | {"error": type(error).__name__, "text": str(error)})
            raise
        reply = replace(reply, model=reply.model or self.model)
        self._write(asked | {"reply": from_json(dump_record(reply))})
        return reply

    def _write(self, data: JSON, mode: str = "ab") -> None:
        with open(self.path, mode, opener=partial(os.open, mode=0o600)) as file:
            file.write(to_json(data, inf_nan_mode="strings") + b"\n")


class ReplayModel:
    """Answers from a recording or from a session file, and compares each request with that in it.

    strict: raise ReplayMismatch at the first that differs, and at each request after it; else go
    on with the answers in their order, and note the differences in `mismatches`.
    ignore: a regular expression; what it matches is not compared (times, temporary folders).

    Agents that share one have to ask in the recorded order. ValueError: the file is neither.
    """

    def __init__(self, path: str | Path, *, strict: bool = True, ignore: str | None = None) -> None:
        self.path, self.strict = Path(path), strict
        self.ignore = re.compile(ignore or "(?!)", re.MULTILINE)
        self.mismatches: list[ReplayMismatch] = []
        self.log: list[Record] = []
        lines = self.path.read_bytes().splitlines()
        if lines and lines[0].startswith(b'{"type":"recording"'):
            self.entries = read_recording(lines)
        else:
            self.log = read_log(self.path)
            self.entries = read_session(self.log)
        self.number, self.end = 0, len(self.entries)  # of the last request, and of the last to come
        models = (getattr(entry.answer, "model", None) for entry in self.entries)
        self.model = next(filter(None, models), "replay")

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        if self.strict and self.mismatches:
            raise self.mismatches[0]  # whoever caught it before
        self.number += 1
        if self.number > self.end:
            text = f"request {self.number} is one more than there are in {self.path.name}"
            self.mismatches.append(ReplayMismatch(text, self.number))
            raise self.mismatches[-1]
        entry = self.entries[self.number - 1]
        start = start_of_tail(messages) if self.log else 0
        asked = list(map(shown_of, messages[start : len(messages) - entry.side]))
        if not self.log:
            start, asked = -1, [offer_of(tools, tool_choice), *asked]
        self._compare(entry, asked, start)
        if isinstance(entry.answer, ModelError):
            raise entry.answer
        if on_delta is not None:
            if entry.answer.thinking:
                on_delta(ThinkingDeltaEvent(entry.answer.thinking))
            if entry.answer.text:
                on_delta(TextDeltaEvent(entry.answer.text))
        return entry.answer

    def assert_done(self) -> None:
        """Raise ReplayMismatch if a request differed, or if recorded ones were not made."""
        if self.mismatches:
            raise self.mismatches[0]
        if left := self.end - self.number:
            text = f"{left} of {len(self.entries)} requests in {self.path.name} were not made"
            first = self.number + 1
            raise ReplayMismatch(f"{text}; the first of them is request {first}", first)

    def _compare(self, entry: Entry, asked: Sequence[JSON], start: int) -> None:
        """Raise or note a ReplayMismatch if a request differs. It begins with message `start`."""
        texts = (
            [self.ignore.sub("…", rendered(message)) for message in side]
            for side in (entry.request, asked)
        )
        for index, (old, new) in enumerate(zip_longest(*texts, fillvalue=""), start):
            if old == new:
                continue
            where = f"message {index}" if index >= 0 else "its tools or tool_choice"
            hint = " (there, a summary was asked for)" * entry.side
            text = f"request {self.number} differs from {self.path.name}{hint} in {where}"
            mismatch = ReplayMismatch(text, self.number, index, diff_of(old, new))
            self.mismatches.append(mismatch)
            if self.strict:
                raise mismatch
            logger.warning("%s", mismatch)
            return


# ---- files


def read_recording(lines: Sequence[bytes]) -> list[Entry]:
    """The requests of a recording. ValueError: a line cannot be read."""
    kinds = [ModelError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    errors = {kind.__name__: kind for kind in kinds}
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            data: JSON = from_json(line)
            if number > 1:
                failed = "error" in data and errors.get(data["error"], ModelError)(data["text"])
                entries.append(Entry(data["request"], failed or from_dict(data["reply"])))
            elif data != RECORDING:
                raise ValueError("it is of another schema")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number} of the recording cannot be read: {error}") from None
    return entries


def read_session(log: Sequence[Record]) -> list[Entry]:
    """What was asked in a session, as far as it says that, and what was answered.

    Messages before the first run were loaded, and not asked for. A Summary without a model is of
    turns that were left out.
    """
    first = next((at for at, record in enumerate(log) if isinstance(record, RunStart)), 0)
    entries: list[Entry] = []
    seen = View()
    for at, record in enumerate(log):
        answer = record if isinstance(record, AssistantMessage) else None
        if isinstance(record, Summary) and (record.model or record.usage):
            answer = AssistantMessage(record.content, usage=record.usage, model=record.model)
        if answer and at >= first:
            messages = seen.messages()
            tail = list(map(shown_of, messages[start_of_tail(messages) :]))
            entries.append(Entry(tail, answer, at, answer is not record))
        seen.take(log, at)
    return entries


# ---- comparing


def start_of_tail(messages: Sequence[Message]) -> int:
    """Where the messages begin that came since the last reply. What is pinned first is no part."""
    start = 0
    for at, message in enumerate(messages):
        extra: JSON = getattr(message, "extra", None) or {}
        pinned = at == start and extra.get("pinned")
        if pinned or isinstance(message, AssistantMessage | SystemMessage):
            start = at + 1
    return start


def shown_of(message: Message) -> JSON:
    """What a model is shown of a message; not how long it took, nor what is noted with it."""
    data = to_dict(message)
    return {name: data[name] for name in SHOWN if name in data}


def offer_of(tools: Sequence[Tool], tool_choice: ToolChoice) -> JSON:
    """The tools of a request as the first thing in it, a line each."""
    lines = [
        f"{tool.name}: {to_json([tool.description, tool.parameters]).decode()}" for tool in tools
    ]
    return {"tool_choice": tool_choice, "content": "\n".join(lines)}


def rendered(shown: JSON) -> str:
    """A message for people: a line for each field, then its content as it stands."""
    fields = {name: value for name, value in shown.items() if name != "content"}
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    content = shown.get("content", "")
    return "\n".join([*lines, content if isinstance(content, str) else json.dumps(content)])


def diff_of(recorded: str, asked: str) -> str:
    """A unified diff from the first difference on, its end left out if it is long."""
    old, new = recorded.split("\n"), asked.split("\n")
    same = next(at for at, (a, b) in enumerate(zip_longest(old, new)) if a != b)
    old, new = (lines[max(0, same - 2) :][:1000] for lines in (old, new))  # more takes minutes
    lines = difflib.unified_diff(old, new, "recorded", "asked", lineterm="", n=2)
    return "\n".join([*lines][:DIFF_LINES])
