"""Sessions: the log of an agent in a file, which another process can continue.

Copy with: the core, common/records.py, common/store.py.

    class MyAgent(Session, Agent): ...

    with MyAgent(llm=..., session="monday") as agent: ...

A record is in the file when `record` returns, so a process that is killed loses nothing it has
reported. Before the next model request and at the end of a run, the records are on the disk. To
store sessions elsewhere, in a database for example, override `open_session` and `write_line`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..common.records import dump_record, load_record
from ..common.store import (
    SESSION_DIR,
    SESSION_NAME,
    SessionFile,
    load_log,
    read_lines,
    read_log,
    session_path,
)
from ..loop import Loop
from ..messages import AssistantMessage, TextPart, Usage
from ..model import Request
from ..transcript import (
    Conversation,
    Record,
    Reset,
    RunEnd,
    RunStart,
    is_from_user,
    usage_of,
)

TITLE = 60  # characters of a session's title
RESET, USER = b'{"type":"reset"', b'{"type":"user"'  # prefixes of lines


class Session(Loop):
    """Continues the named session, and writes every record to its file.

    `session_file` is the open file, or None. `saved` is how many records of the log are in it.

    session: the session to continue or create; None keeps the log in memory.
    session_dir: the folder of the session files.
    session_fsync: whether to wait for the disk before a model request and at the end of a run. If
        not, a power failure may lose the newest records.
    """

    session: str | None = None
    session_dir: str | Path = SESSION_DIR
    session_fsync: bool = True

    def __post_init__(self) -> None:
        self.session_file: SessionFile | None = None
        try:
            super().__post_init__()
        except BaseException:
            if self.session_file:
                self.session_file.close()
            raise

    def load_records(self) -> Iterable[Record]:
        records = list[Record]()
        if self.session is not None:
            records = load_log(self.open_session(self.session))
        self.saved = len(records)
        return records

    def open_session(self, name: str, *, new: bool = False) -> Iterable[bytes]:
        """Open a session, and read its lines.

        Raises SessionLocked if another agent or process has it open, FileExistsError if a `new`
        session already exists, and ValueError for an invalid name or file.
        """
        path = session_path(name, self.session_dir)
        self.session_file = SessionFile(path, fsync=self.session_fsync, new=new)
        return read_lines(path)

    def write_line(self, line: bytes) -> None:
        """Append a line to the session. If you raise OSError here, the line is written later."""
        if self.session_file:
            self.session_file.append(line)

    def record(self, record: Record) -> None:
        if self.session is None:
            super().record(record)
            return
        if isinstance(record, RunStart):
            shown = [tool for tool in self.toolset() if not tool.deferred]
            tools = [[tool.name, tool.description, tool.parameters] for tool in shown]
            record = replace(
                record, session=self.session, system_prompt=self.system_text(), tools=tools
            )
        line = dump_record(record)  # raises before the log holds a record that can't be written
        if isinstance(record, Reset | RunStart):  # may drop records from the log
            with self.log.lock:
                if isinstance(record, Reset):  # written first: a full disk must not clear the log
                    self.write_line(line)
                super().record(record)
                # if a workflow is replayed, its RunStart replaces its attempt
                self.saved = 1 if isinstance(record, Reset) else min(self.saved, len(self.log) - 1)
        else:
            super().record(record)
        self.save(record, line)
        if isinstance(record, RunEnd) and self.session_file:
            self.session_file.sync()

    def save(self, record: Record | None = None, line: bytes = b"") -> None:
        """Write the records that a full disk has refused. Raises OSError if it refuses them again.

        `run` and `close` do this first. `line` is the line of `record`.
        """
        if self.session is None:
            return
        with self.log.lock:  # lines of several threads follow the order of the log
            while self.saved < len(self.log):
                unsaved = self.log[self.saved]
                self.write_line(line if unsaved is record else dump_record(unsaved))
                self.saved += 1

    async def wait_for_cancelled_run(self) -> None:
        await super().wait_for_cancelled_run()
        self.save()  # `run` may find nothing to continue, and record nothing

    async def call_model(self, request: Request) -> AssistantMessage:
        if self.session_file:
            self.session_file.sync()
        return await super().call_model(request)

    def fork(self, at: int | None = None, *, session: str | None = None, **settings: Any) -> Self:
        """Copy the agent, in memory or to a new session: see `Loop.fork`.

        Raises FileExistsError if the session already exists.
        """
        twin = super().fork(at, **settings, session=None)
        if session is not None:
            twin.session = session
            twin.open_session(session, new=True)
            try:
                twin.save()
            except BaseException:
                if twin.session_file:
                    twin.session_file.discard()
                raise
        return twin

    def close(self) -> None:
        """Save and close the session. You can open it again, but this agent can't record any more.

        Raises OSError if the disk is full. The session is closed all the same: once there's space,
        `fork(session="other")` writes everything to another one.
        """
        if self.session_file and not self.session_file.closed:
            try:
                self.save()
            finally:
                self.session_file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SessionInfo(NamedTuple):
    """What a list shows of a session.

    title: the beginning of the first prompt.
    latest: the beginning of the newest prompt.
    modified: Unix time in seconds.
    """

    name: str
    title: str
    latest: str
    modified: float
    path: Path

    @property
    def usage(self) -> Usage:
        """The tokens of all requests. To add them up, the whole file is read."""
        log: list[Record] = []
        with suppress(OSError, ValueError):  # an unreadable session
            log = read_log(self.path)
        return usage_of(Conversation(log).catch_up().requests)


def list_sessions(session_dir: str | Path = SESSION_DIR, names: str = "*") -> list[SessionInfo]:
    """List the sessions of a folder, newest first. If one can't be read, its title says why.

    A file is left out if no session can have its name.

    names: a glob for the names of the sessions to read, such as "desk-*".
    """
    infos: list[SessionInfo] = []
    for path in Path(session_dir).expanduser().glob(f"{names}.jsonl"):
        if not SESSION_NAME.fullmatch(path.stem):
            continue
        try:
            modified = path.lstat().st_mtime
        except FileNotFoundError:  # it was deleted meanwhile
            continue
        try:
            lines = read_lines(path)
            title, latest = first_prompt(since_reset(lines)), first_prompt(reversed(lines))
        except (OSError, ValueError) as error:
            title, latest = one_line(str(error)), ""
        infos.append(SessionInfo(path.stem, title, latest, modified, path))
    return sorted(infos, key=lambda info: -info.modified)


def one_line(text: str) -> str:
    """Put a text on one line: a space replaces line ends, and control characters are left out."""
    return "".join(filter(str.isprintable, " ".join(text.split())))


def since_reset(lines: Sequence[bytes]) -> Sequence[bytes]:
    """The lines after the newest Reset."""
    for at in range(len(lines), 0, -1):
        if lines[at - 1].startswith(RESET):
            return lines[at:]
    return lines


def first_prompt(lines: Iterable[bytes]) -> str:
    """The beginning of the first prompt before a Reset, or "" if there's none.

    Only the lines of user messages are parsed, because a session may have megabytes of others.
    """
    for line in lines:
        if line.startswith(RESET):
            break
        if line.startswith(USER):
            with suppress(ValueError):  # loading the session reports the line
                record = load_record(line)
                if is_from_user(record):
                    text = record.content
                    if not isinstance(text, str):  # attached files follow the prompt
                        text = next((part.text for part in text if isinstance(part, TextPart)), "")
                    return one_line(text)[:TITLE]
    return ""
