"""Keeps an agent's log in a file that outlives its process, and goes on from it.

Copy with: the core, store.py, saved.py.

    class MyAgent(Session, Agent): ...

    agent = MyAgent(llm=..., session="monday")

A record is in the file when `record` returns, so a killed process loses nothing that anybody was
told of; it is on the disk before the next model call, and when a run ends. A line that cannot be
read stands in the log as an `Unknown` record of type "unreadable", with the line's number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Self

from ..loop import Loop
from ..messages import AssistantMessage, Record, Request, Reset, RunEnd, Unknown, dump_record
from ..runs import recording
from ..saved import SESSION_DIR, load_log
from ..store import FileStore, Journal, SessionStore


class Session(Loop):
    """Continues the session of a name, and writes every record to it.

    session: its name; None keeps nothing.
    session_dir: the directory of the session files.
    session_fsync: whether to wait for the disk; without, a power cut may lose the newest records.
    session_store: another place than a directory.
    journal: the open session, from the store.
    saved: how many records of the log are in it.
    saving: whether one is being written just now.
    """

    session: str | None = None
    session_dir: str | Path = SESSION_DIR
    session_fsync: bool = True
    session_store: SessionStore | None = None
    journal: Journal | None = field(default=None, init=False)
    saved: int = field(default=0, init=False)
    saving: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        try:
            if self.session is not None:  # before super(): other mixins may look at the log there
                store = self._store()
                self.journal = store.open(self.session)
                log = load_log(store.read(self.session))
                self.log, self.saved = log, len(log)
            super().__post_init__()
        except BaseException:
            self.close()
            raise

    def record(self, record: Record) -> None:
        if self.journal is None:
            super().record(record)
            return
        line = dump_record(record)  # what cannot be written raises here, and is in neither
        with recording:
            saved = self.saved
            if isinstance(record, Reset):
                self.saved = 0  # the log begins anew
            super().record(record)
            try:
                self._save(record, line)
            except BaseException:
                if isinstance(record, Reset):
                    self.saved = saved  # it does not
                raise
        if isinstance(record, RunEnd):
            self.journal.sync()

    async def call_model(self, request: Request) -> AssistantMessage:
        if self.journal is not None:
            self.journal.sync()
        return await super().call_model(request)

    def fork(self, at: int | str | None = None, session: str | None = None) -> Self:
        """A copy up to record `at`, or up to the snapshot of that label.

        It is in memory only, or a new session. FileExistsError: there is one of this name.
        """
        twin = super().fork(place_of(self.log, at) if isinstance(at, str) else at)
        if session is not None:
            twin.session = session
            twin.journal = self._store().create(session, map(dump_record, twin.log))
            twin.saved = len(twin.log)
        return twin

    def __copy__(self) -> Self:
        """A copy in memory only, as `fork` makes it: two agents cannot write one session."""
        twin = super().__copy__()
        twin.session, twin.journal, twin.saving, twin.log = None, None, False, self.log[:]
        return twin

    def snapshot(self, label: str) -> int:
        """Mark this place in the log, for `fork(at=label)`. Returns its number, which does too."""
        self.record(Unknown({"type": "snapshot", "label": label, "at": time.time()}))
        return len(self.log)

    def close(self) -> None:
        """Let go of the session, so that others can open it. After that nothing can be recorded."""
        if self.journal is not None:
            try:
                self._save()
            finally:
                self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _save(self, record: Record | None = None, line: bytes = b"") -> None:
        """Write what the log has and the session has not: one record; more after a full disk.

        `line` is `record`. What a signal handler records while another is being written comes
        after that.
        """
        while self.journal is not None and not self.saving and self.saved < len(self.log):
            self.saving = True
            try:
                for each in self.log[self.saved :]:
                    self.journal.append(line if each is record else dump_record(each))
                    self.saved += 1
            finally:
                self.saving = False

    def _store(self) -> SessionStore:
        return self.session_store or FileStore(self.session_dir, fsync=self.session_fsync)


def place_of(log: Sequence[Record], label: str) -> int:
    """The place behind the newest snapshot of this label. ValueError: there is none."""
    places = {
        str(record.data.get("label")): at
        for at, record in enumerate(log, 1)
        if isinstance(record, Unknown) and record.data.get("type") == "snapshot"
    }
    if label not in places:
        raise ValueError(f"there is no snapshot {label!r}; there are: {list(places)}")
    return places[label]
