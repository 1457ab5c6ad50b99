"""Plays a recording or a session again, at no cost, and fails at the first request that differs.

Copy with: messages.py, events.py, errors.py, transcript.py, store.py, saved.py.

    llm = ReplayModel("run.jsonl")  # what RecordingModel wrote, or Session

A recording has each request whole. A session has what came since the reply before: results,
prompts. That is what a replay compares.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Iterable, Sequence
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
    RunEnd,
    RunStart,
    Summary,
    SystemMessage,
    ToolChoice,
    from_dict,
    to_dict,
)
from ..saved import read_log
from ..transcript import View

if TYPE_CHECKING:
    from ..tools import Tool

logger = logging.getLogger("agentloop")

RECORDING = {"type": "recording", "schema": 1}  # the first line of one
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
        asked = [shown_of(to_dict(m)) for m in messages[start : len(messages) - entry.side]]
        if not self.log:
            offered = ((tool.name, tool.description, tool.parameters) for tool in tools)
            start, asked = -1, [offer_of(offered, tool_choice), *asked]
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
                offer = offer_of(data["tools"], data["tool_choice"])
                request = [offer, *map(shown_of, data["messages"])]
                entries.append(Entry(request, failed or from_dict(data["reply"])))
            elif data != RECORDING:
                raise ValueError("it is of another schema")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number} of the recording cannot be read: {error}") from None
    return entries


def read_session(log: Sequence[Record]) -> list[Entry]:
    """What was asked in a session, as far as it says that, and what was answered.

    Messages before the first run were loaded, and not asked for. A summary between two runs was
    asked for by hand: the next run begins with it. A Summary without a model is of turns that were
    left out.
    """
    in_a_run = not any(isinstance(record, RunStart) for record in log)
    entries: list[Entry] = []
    seen = View()
    for at, record in enumerate(log):
        if isinstance(record, RunStart | RunEnd):
            in_a_run = isinstance(record, RunStart)
        answer = record if isinstance(record, AssistantMessage) else None
        if isinstance(record, Summary) and (record.model or record.usage):
            answer = AssistantMessage(record.content, usage=record.usage, model=record.model)
        if answer and in_a_run:
            messages = seen.messages()
            tail = [shown_of(to_dict(m)) for m in messages[start_of_tail(messages) :]]
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


def shown_of(message: JSON) -> JSON:
    """What a model is shown of a message; not how long it took, nor what is noted with it."""
    return {name: message[name] for name in SHOWN if name in message}


def offer_of(tools: Iterable[Sequence[Any]], tool_choice: ToolChoice) -> JSON:
    """The tools of a request (name, description, parameters) as the first thing in it."""
    lines = [f"{name}: {to_json(about).decode()}" for name, *about in tools]
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
