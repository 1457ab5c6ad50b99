"""Records what a model is asked and answers, and plays it again: at no cost, with no network.

Copy with: messages.py, events.py, errors.py, transcript.py, store.py, saved.py.

    llm = RecordingModel(ChatOpenAI("gpt-5-mini"), "run.jsonl")  # asks, and keeps all of it
    llm = ReplayModel("run.jsonl")                               # says the same, and asks nobody
    await ReplayModel("session.jsonl").rerun(agent)              # a session is a test

A recording has each request whole. A session has what came since the reply before: results,
prompts, messages into the run. That is what a replay compares.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from pydantic_core import from_json, to_json

from ..errors import (
    AuthenticationFailed,
    BadRequest,
    BadResponse,
    ConnectionFailed,
    ContentRefused,
    ContextWindowExceeded,
    ModelError,
    Overloaded,
    RateLimited,
    ServerError,
)
from ..events import OnDelta, StepStartEvent, TextDeltaEvent, ThinkingDeltaEvent
from ..messages import (
    AssistantMessage,
    Message,
    Record,
    RunEnd,
    RunStart,
    SideRequest,
    Stop,
    Summary,
    SystemMessage,
    ToolCall,
    ToolChoice,
    ToolMessage,
    ToolStart,
    UserMessage,
    dump_record,
    from_dict,
    to_dict,
)
from ..saved import load_log
from ..transcript import open_calls, seal, view

if TYPE_CHECKING:
    from ..loop import ChatModel, Loop
    from ..tools import Tool

logger = logging.getLogger("agentloop")

RECORDING_SCHEMA = 1
SHOWN = ("type", "tool_name", "tool_call_id", "is_error", "thinking", "tool_calls", "content")
DIFF_LINES = 60
ENDED = ("completed", "done", "max_iterations", "no_progress", "refused")  # of itself, not cut off
NOT_APPROVED = "Denied"  # begins the result of a call that nobody approved

MODEL_ERRORS = (
    *(AuthenticationFailed, BadRequest, BadResponse, ConnectionFailed, ContentRefused),
    *(ContextWindowExceeded, Overloaded, RateLimited, ServerError),
)

JSON: TypeAlias = dict[str, Any]


class ReplayMismatch(AssertionError):
    """A request is not the recorded one: its `number` from 1, the message's `index`, the `diff`."""

    def __init__(self, text: str, number: int, index: int | None = None, diff: str = "") -> None:
        super().__init__(f"{text}\n{diff}" if diff else text)
        self.number, self.index, self.diff = number, index, diff


@dataclass(slots=True)
class Entry:
    """A request and what came of it; a session does not say the tools and the tool_choice.

    side: a request for a summary, say, which ends with a prompt of its own. at: the reply's place
    in the session.
    """

    messages: Sequence[JSON]
    answer: AssistantMessage | ModelError
    tools: Mapping[str, str] | None = None
    tool_choice: str | None = None
    side: bool = False
    at: int = 0
    number: int = 0
    played: bool = False

    def answers(self, asked: Entry) -> bool:
        """Whether a request is the one that was made here."""
        same = self.messages == asked.messages and self.tools in (None, asked.tools)
        return same and self.tool_choice in (None, asked.tool_choice)

    def difference(self, asked: Entry) -> tuple[str, int | None, str]:
        """What is first in a request that is not as it was here: where, the message, a diff."""
        if found := first_difference(self.messages, asked.messages):
            return "message", *found
        if self.tools not in (None, asked.tools):
            return (
                "its tools",
                None,
                diff_of(as_lines(self.tools or {}), as_lines(asked.tools or {})),
            )
        said = f"{self.tool_choice!r} was recorded, {asked.tool_choice!r} is asked"
        return f"its tool_choice: {said}", None, ""


class RecordingModel:
    """Asks `llm`, and writes each request with its reply, or its ModelError, to a new file.

    The file is for the owner's eyes; a line is in it before the reply is returned. Agents may
    share one, side by side too. FileExistsError: there is such a file.
    """

    def __init__(self, llm: ChatModel, path: str | Path) -> None:
        self.llm, self.path = llm, Path(path)
        self._lock, self._before = threading.Lock(), list[bytes]()
        self._write(
            {"type": "recording", "schema": RECORDING_SCHEMA, "model": llm.model}, os.O_EXCL
        )

    def __repr__(self) -> str:
        return f"RecordingModel({self.llm!r}, {str(self.path)!r})"

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
        fields: JSON = {"tools": digests(tools), "tool_choice": tool_choice}
        try:
            reply = await self.llm.ainvoke(
                messages, tools, tool_choice=tool_choice, on_delta=on_delta
            )
        except ModelError as error:
            names = ("status", "request_id", "retry_after")
            said = {"class": type(error).__name__, "message": str(error)}
            fields["error"] = said | {name: getattr(error, name) for name in names}
            self._add(messages, fields)
            raise
        reply = replace(reply, model=reply.model or self.model)
        self._add(messages, fields | {"reply": from_json(dump_record(reply))})
        return reply

    def _add(self, messages: Sequence[Message], fields: JSON) -> None:
        """Write a line. Messages that the line before begins with too are counted, not repeated."""
        lines = [dump_record(message) for message in messages]
        with self._lock:
            kept = shared(lines, self._before)
            new = [from_json(line) for line in lines[kept:]]
            self._write({"type": "request", "kept": kept, "messages": new} | fields)
            self._before = lines

    def _write(self, data: JSON, flags: int = 0) -> None:
        append_to(self.path, to_json(data, inf_nan_mode="strings") + b"\n", flags)


class ReplayModel:
    """Answers from a recording or from a session file, and compares each request with that in it.

    strict: raise ReplayMismatch at the first that differs, and at each request after it; else go
    on with the answers in their order, and note the differences in `mismatches`.
    ignore: a regular expression; what it matches is not compared (times, temporary folders).

    Agents that share a recording, side by side too, each get the answer to what they ask. A
    session's answers come in their order. ValueError: the file is neither.
    """

    def __init__(self, path: str | Path, *, strict: bool = True, ignore: str | None = None) -> None:
        self.path, self.strict, self.ignore = Path(path), strict, re.compile(ignore or "(?!)")
        self.mismatches: list[ReplayMismatch] = []
        self.log: list[Record] = []
        lines = self.path.read_bytes().splitlines(keepends=True)
        self.recorded = json_of(lines[0] if lines else b"").get("type") == "recording"
        if self.recorded:
            self.entries = read_recording(lines)
        else:
            self.log = read_log(self.path)
            self.entries = read_session(self.log)
        for number, entry in enumerate(self.entries, 1):
            entry.number = number
            entry.messages = [self._without_ignored(message) for message in entry.messages]
        models = (getattr(entry.answer, "model", None) for entry in self.entries)
        self.model = next(filter(None, models), "replay")
        self._calls: Sequence[ToolCall] = ()  # the agent is at work on these
        self._sent: list[UserMessage] = []  # into the run, while it is
        self._run: RecordedRun | None = None

    def __repr__(self) -> str:
        return f"ReplayModel({str(self.path)!r})"

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
        entry = self._find(messages, digests(tools), tool_choice)
        entry.played = True
        if isinstance(entry.answer, ModelError):
            raise entry.answer
        reply = entry.answer
        if not entry.side:
            self._calls = reply.tool_calls
            self._sent = [*self._sent, *sent_after(self.log, entry.at)]
        if self._run and any(call.id in self._run.open for call in reply.tool_calls):
            raise Stop("interrupted")  # as the recorded run was, before these had results
        if on_delta is not None:
            for piece in re.findall(r"\S+\s*|\s+", reply.thinking or ""):
                on_delta(ThinkingDeltaEvent(piece))
            for piece in re.findall(r"\S+\s*|\s+", reply.text):
                on_delta(TextDeltaEvent(piece))
        return reply

    def assert_done(self) -> None:
        """Raise ReplayMismatch if a request differed, or if recorded ones were not made."""
        if self.mismatches:
            raise self.mismatches[0]
        if left := self._left():
            text = f"{len(left)} of {len(self.entries)} requests in {self.path.name} were not made"
            number = left[0].number
            raise ReplayMismatch(f"{text}; the first of them is request {number}", number)

    async def rerun(self, agent: Loop) -> None:
        """Do a session's runs again with a copy of this agent, each from where the session stood.

        Its tools run; calls that were cut off do not. Raises ReplayMismatch as `assert_done` does.
        """
        if not self.log:
            raise ValueError(f"{self.path} is no session: rerun() needs its prompts and runs")
        twin: Any = agent.fork()
        twin.llm, twin.listeners = self, [*twin.listeners, partial(self._steer, twin)]
        if getattr(getattr(twin, "compaction", None), "model", None):
            twin.compaction = replace(twin.compaction, model=self)  # which has its summaries too
        for run in recorded_runs(self.log):
            twin.log = self.log[: run.begin]
            self._run, self._calls, self._sent = run, open_calls(twin.log), []
            try:
                await twin.run()
            except ReplayMismatch as mismatch:
                raise mismatch.with_traceback(None) from None  # the way to it says nothing
            except Exception:
                if run.reason != "error":  # such as a tool's, which ended the recorded run too
                    raise
            finally:
                self._run = None
            if left := self._left(run.until):
                raise ReplayMismatch(
                    f"the run ended before request {left[0].number}", left[0].number
                )
        self.assert_done()

    def approve(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call may run, for the `approve=` of tools: not if it was denied then."""
        denied = {
            record.tool_call_id
            for record in self.log
            if isinstance(record, ToolMessage)
            and record.is_error
            and NOT_APPROVED in record.text[:20]
        }
        return not any(
            call.name == tool
            and call.id in denied
            and (call.parsed or {}).items() <= arguments.items()
            for call in self._calls
        )

    def _steer(self, agent: Loop, event: Any) -> None:
        """Send what was sent into the recorded run after the reply whose calls start now."""
        while self._sent and isinstance(event, StepStartEvent):
            agent.record(self._sent.pop(0))

    def _left(self, until: int | None = None) -> list[Entry]:
        """What was not played, up to a place in the session."""
        return [e for e in self.entries if not e.played and (until is None or e.at <= until)]

    def _find(self, messages: Sequence[Message], tools: JSON, tool_choice: str) -> Entry:
        """The entry that answers this request. Raises or notes a ReplayMismatch."""
        left, of = self._left(self._run and self._run.until), self.path.name
        if not left and self._run and self._run.reason not in ENDED:
            raise Stop("interrupted")
        if not left:
            text = f"request {len(self.entries) + 1} is one more than there are in {of}"
            if later := self._left():
                text = f"one more request before request {later[0].number}: in {of} the run ends"
            return self._note(ReplayMismatch(text, len(self.entries) + 1), None)
        start = 0 if self.recorded else start_of_tail(messages)
        shown = [self._without_ignored(shown_of(message)) for message in messages[start:]]
        shown = shown[: len(shown) - left[0].side]
        asked = Entry(shown, left[0].answer, tools, tool_choice)
        if not self.recorded:
            left = left[:1]
        for entry in left:
            if entry.answers(asked):
                return entry
        entry = max(left, key=lambda entry: shared(entry.messages, shown))
        where, index, diff = entry.difference(asked)
        if index is not None:
            index += start
            where = f"{where} {index}"
        hint = " (there, a summary was asked for)" * entry.side
        text = f"request {entry.number} differs from {of}{hint} in {where}"
        return self._note(ReplayMismatch(text, entry.number, index, diff), entry)

    def _note(self, mismatch: ReplayMismatch, entry: Entry | None) -> Entry:
        self.mismatches.append(mismatch)
        if self.strict or entry is None:
            raise mismatch
        logger.warning("%s", mismatch)
        return entry

    def _without_ignored(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.ignore.sub("…", value)
        if isinstance(value, Mapping):
            items = cast(Mapping[str, Any], value).items()
            return {name: self._without_ignored(item) for name, item in items}
        if isinstance(value, list | tuple):
            return [self._without_ignored(item) for item in cast(Sequence[Any], value)]
        return value


class RecordedRun(NamedTuple):
    """A run of a session that got as far as a reply or a call.

    begin: where its own work begins, behind its prompt. until: where it ends. reason: how, None if
    it was killed. open: the ids of its calls that had no result then.
    """

    begin: int
    until: int
    reason: str | None
    open: frozenset[str]


def recorded_runs(log: Sequence[Record]) -> list[RecordedRun]:
    """The runs of a session that can be done again."""
    starts = [at for at, record in enumerate(log) if isinstance(record, RunStart)]
    work = (AssistantMessage, Summary, SideRequest, ToolStart)
    found: list[RecordedRun] = []
    for start, following in zip(starts, [*starts[1:], len(log)], strict=True):
        begin = next((i for i in range(start, following) if isinstance(log[i], work)), None)
        if begin is None:
            continue
        ends = (i for i in range(start, following) if isinstance(log[i], RunEnd))
        until = next(ends, following)
        end = log[until] if until < following else None
        still_open = frozenset(call.id for call in open_calls(log[:until]))
        if still_open.isdisjoint(call.id for call in open_calls(log[:begin])):
            reason = end.stop_reason if isinstance(end, RunEnd) else None
            found.append(RecordedRun(begin, until, reason, still_open))
    return found


# ---- files


def dump_to(folder: str | Path) -> Callable[[str, str], None]:
    """For the `dump=` of a model: writes each body into the folder, for the owner's eyes.

    They are 0001-request.json, 0001-response.json (.sse if it was a stream), and so on.
    """
    folder, lock = Path(folder), threading.Lock()

    def dump(request: str, response: str) -> None:
        kind = "json" if response.lstrip()[:1] in ("{", "[", "") else "sse"
        try:
            with lock:
                folder.mkdir(0o700, parents=True, exist_ok=True)
                numbers = [int(name[:4]) for name in os.listdir(folder) if name[:4].isdecimal()]
                start = folder / f"{max(numbers, default=0) + 1:04}-"
                append_to(Path(f"{start}request.json"), request.encode(), os.O_EXCL)
                append_to(Path(f"{start}response.{kind}"), response.encode(), os.O_EXCL)
        except OSError as error:  # it is no reason to lose the answer
            logger.warning("the bodies of a request could not be written: %s", error)

    return dump


def append_to(path: Path, data: bytes, flags: int = 0) -> None:
    """Add the data to a file that only its owner can read."""
    flags |= os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "ab") as file:
        file.write(data)


def read_log(path: Path) -> list[Record]:
    """The log that a session file holds. ValueError: it is no session file."""
    with open(path, "rb") as file:
        lines = [line.rstrip(b"\n") for line in file]
    kind = json_of(lines[0] if lines else b"").get("type")
    if kind == "recording":
        raise ValueError(f"{path} is a recording of requests, and no session")
    header = 1 if kind == "session" else 0
    if not header and not any("type" in json_of(line) for line in lines[:1]):
        raise ValueError(f"{path} is no session: its first line is not one of a session")
    return load_log(enumerate(lines[header:], header + 1))


def read_session(log: Sequence[Record]) -> list[Entry]:
    """What was asked in a session, as far as it says that, and what was answered.

    Messages before the first run were loaded, and not asked for. A summary between two runs was
    asked for by hand: the next run begins with it.
    """
    in_a_run = not any(isinstance(record, RunStart) for record in log)
    entries: list[Entry] = []
    reply = 0  # the last that is no empty one
    for at, record in enumerate(log):
        if isinstance(record, RunStart | RunEnd):
            in_a_run = isinstance(record, RunStart)
        if in_a_run and (answer := answer_of(record)):
            between = log[reply:at]
            summarized = any(isinstance(each, Summary) for each in between)
            messages = view(log[:at]) if summarized else seal(between)
            tail = list(map(shown_of, messages[start_of_tail(messages) :]))
            side = not isinstance(record, AssistantMessage)
            entries.append(Entry(tail, answer, side=side, at=at))
        if is_reply(record):
            reply = at
    return entries


def is_reply(record: Record) -> bool:
    """Whether it is a reply that is shown to the model later; an empty one is not."""
    return isinstance(record, AssistantMessage) and bool(record.text.strip() or record.tool_calls)


def answer_of(record: Record) -> AssistantMessage | ModelError | None:
    """What the agent's model said to the request that left this record; None if none did.

    A Summary without a model is of turns that were left out; a SideRequest is a summary that
    failed, or another model's.
    """
    if isinstance(record, AssistantMessage):
        return record
    if isinstance(record, Summary) and (record.model or record.usage):
        return AssistantMessage(record.content, usage=record.usage, model=record.model)
    if isinstance(record, SideRequest) and (record.extra or {}).get("compaction"):
        if record.usage is None and record.model is None:
            return ModelError("this request failed when the session was made")
        return AssistantMessage("", usage=record.usage, model=record.model)
    return None


def read_recording(lines: Sequence[bytes]) -> list[Entry]:
    """The requests of a recording. A last line that was cut off by a kill is left out."""
    if json_of(lines[0]).get("schema") != RECORDING_SCHEMA:
        raise ValueError(
            f"this recording is not of schema {RECORDING_SCHEMA}: use a newer agentloop"
        )
    entries: list[Entry] = []
    messages: list[JSON] = []
    for number, line in enumerate(lines[1:], 2):
        data = json_of(line)
        try:
            new = [shown_of(from_dict(message)) for message in data["messages"]]
            messages = [*messages[: data["kept"]], *new]
            answer = from_dict(data["reply"]) if "reply" in data else error_of(data["error"])
            entries.append(Entry(messages, answer, data["tools"], data["tool_choice"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if number == len(lines) and not line.endswith(b"\n"):
                break
            raise ValueError(f"line {number} of the recording cannot be read: {error}") from None
    return entries


def error_of(data: Mapping[str, Any]) -> ModelError:
    """The error that was recorded; a plain ModelError if its class is not one of ours."""
    kind = next((kind for kind in MODEL_ERRORS if kind.__name__ == data["class"]), ModelError)
    names = ("status", "request_id", "retry_after")
    return kind(str(data["message"]), **{name: data.get(name) for name in names})


def json_of(line: bytes) -> JSON:
    """The object that a line holds; an empty one if it holds none."""
    try:
        data = from_json(line)
    except ValueError:
        return {}
    return cast(JSON, data) if isinstance(data, dict) else {}


# ---- comparing


def sent_after(log: Sequence[Record], at: int) -> list[UserMessage]:
    """The messages into the run between the reply at this place and the next one."""
    found: list[UserMessage] = []
    for record in log[at + 1 :]:
        if isinstance(record, AssistantMessage | RunEnd):
            break
        if isinstance(record, UserMessage) and (record.extra or {}).get("sent"):
            found.append(record)
    return found


def start_of_tail(messages: Sequence[Message]) -> int:
    """Where the messages begin that came since the last reply. What is pinned first is no part."""
    end = range(len(messages), 0, -1)
    at = next((n for n in end if isinstance(messages[n - 1], AssistantMessage | SystemMessage)), 0)
    while at < len(messages) and is_pinned(messages[at]):
        at += 1
    return at


def is_pinned(message: Message) -> bool:
    extra = message.extra if isinstance(message, UserMessage) else None
    return bool((extra or {}).get("pinned"))


def digests(tools: Sequence[Tool]) -> dict[str, str]:
    """For each tool its name, and what tells its description and parameters from others."""
    said = {tool.name: to_json([tool.description, tool.parameters]) for tool in tools}
    return {name: sha256(text).hexdigest()[:16] for name, text in said.items()}


def shown_of(message: Message) -> JSON:
    """What a model is shown of a message; not how long it took, nor what is noted with it."""
    data = to_dict(message)
    return {name: data[name] for name in SHOWN if name in data}


def first_difference(recorded: Sequence[JSON], asked: Sequence[JSON]) -> tuple[int, str] | None:
    """The index of the first message that differs, and how; None if none does."""
    for at in range(max(len(recorded), len(asked))):
        old, new = (side[at] if at < len(side) else {} for side in (recorded, asked))
        if old != new:
            return at, diff_of(as_lines(old), as_lines(new))
    return None


def shared(some: Sequence[Any], others: Sequence[Any]) -> int:
    """With how many equal items both begin."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))
    return sum(1 for _ in pairs)


def diff_of(recorded: Sequence[str], asked: Sequence[str]) -> str:
    """A unified diff, its end left out if it is long."""
    size = max(len(recorded), len(asked))
    names = {"fromfile": "recorded", "tofile": "asked", "lineterm": "", "n": 2}
    if size > 100 * DIFF_LINES:  # which difflib would compare for minutes
        same = shared(recorded, asked)
        recorded, asked = (lines[max(0, same - 2) :][:DIFF_LINES] for lines in (recorded, asked))
    lines = list(difflib.unified_diff(recorded, asked, **cast(Any, names)))
    left = len(lines) - DIFF_LINES
    return "\n".join(lines[:DIFF_LINES] + [f"({left} more lines)"] * (left > 0))


def as_lines(data: Mapping[str, Any]) -> list[str]:
    """A message for people, line by line: its fields, then its text as it stands."""
    rest = {name: value for name, value in data.items() if name != "content"}
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in rest.items()]
    content = data.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    return [*lines, *(text.split("\n") if text else [])]
