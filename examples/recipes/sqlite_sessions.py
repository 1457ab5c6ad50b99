"""Sessions in one SQLite database instead of a directory of files.

A store has four methods, and an open session three. SQLite does the hard parts: a commit survives a
kill, `synchronous` says when it survives a power cut, and the lock on the database goes away with
the process that holds it. One process uses a database at a time.
"""

import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentloop import Agent, ScriptedModel
from agentloop.errors import SessionLocked
from agentloop.mixins.session import Session
from agentloop.saved import sessions
from agentloop.store import Stored, is_name

TABLE = """
CREATE TABLE IF NOT EXISTS records (
    session TEXT, number INTEGER, at REAL, line BLOB, PRIMARY KEY (session, number)
)
"""
ADD = """
INSERT INTO records SELECT ?, 1 + COALESCE(MAX(number), 0), ?, ? FROM records WHERE session = ?
"""


class SQLiteStore:
    """Give it to an agent as `session_store=`, and close it when all its sessions are closed."""

    def __init__(self, path: str | Path) -> None:
        self.open_sessions: set[str] = set()
        self.lock = threading.RLock()  # one connection: nothing comes between the parts of a change
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        try:
            self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = NORMAL")
            self.db.execute(TABLE)
        except sqlite3.OperationalError as error:
            self.db.close()
            raise SessionLocked(f"{path} is in use by another process: {error}") from error

    def execute(self, sql: str, *values: Any) -> list[Any]:
        """All rows at once: a cursor left open would block the next sync. OSError: a full disk."""
        try:
            with self.lock:
                return self.db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise OSError(str(error)) from error

    def list(self) -> Iterable[Stored]:
        rows = "SELECT session, MAX(at), SUM(LENGTH(line)) FROM records GROUP BY session"
        return [Stored(*row) for row in self.execute(rows)]

    def read(self, name: str) -> Iterator[tuple[int, bytes]]:
        rows = "SELECT number, line FROM records WHERE session = ? ORDER BY number"
        return iter(self.execute(rows, name))

    def open(self, name: str) -> "SQLiteJournal":
        if not is_name(name):
            raise ValueError(f"{name!r:.200} cannot be a session's name")
        with self.lock:
            if name in self.open_sessions:
                raise SessionLocked(f"the session {name!r} is open elsewhere")
            return SQLiteJournal(self, name)

    def create(self, name: str, lines: Iterable[bytes]) -> "SQLiteJournal":
        lines = list(lines)
        with self.lock:
            if name in self.open_sessions or next(self.read(name), None):
                raise FileExistsError(f"there is a session {name!r} already")
            journal = self.open(name)
            try:
                self.execute("BEGIN")
                try:
                    for line in lines:
                        journal.append(line)
                    self.execute("COMMIT")
                except BaseException:
                    self.execute("ROLLBACK")
                    raise
            except BaseException:
                journal.close()
                raise
            return journal

    def __enter__(self) -> "SQLiteStore":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.db.close()


class SQLiteJournal:
    """An open session: closed, or garbage, it can be opened again."""

    def __init__(self, store: SQLiteStore, name: str) -> None:
        self.store, self.name, self.closed = store, name, False
        store.open_sessions.add(name)

    def append(self, line: bytes) -> None:
        if self.closed:
            raise ValueError(f"the session {self.name!r} is closed")
        self.store.execute(ADD, self.name, time.time(), line, self.name)

    def sync(self) -> None:
        if self.closed:
            raise ValueError(f"the session {self.name!r} is closed")
        self.store.execute("PRAGMA wal_checkpoint(FULL)")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.store.open_sessions.discard(self.name)

    __del__ = close


class MyAgent(Session, Agent):
    """An agent with sessions."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, SQLiteStore(Path(folder, "all.db")) as store:
        for question, answer in [("What is 2 + 3?", "5"), ("And twice that?", "10")]:
            agent = MyAgent(llm=ScriptedModel(answer), session="sums", session_store=store)
            print(question, agent.run_sync(question).text)
            agent.close()
        for info in sessions(store=store):
            print(f"{info.name}: {info.title!r}, {info.size} bytes")


if __name__ == "__main__":
    main()
