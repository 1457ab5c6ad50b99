"""Sessions in one SQLite database instead of a folder of files.

Use a database if one file is easier to back up than thousands. A subclass of `Session` reads the
lines of a session, and appends to them. SQLite does the rest: a commit survives a kill and a power
failure, and the lock ends with its process. Only one process at a time can use a database.
"""

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from agentloop import Agent, ScriptedModel, Session, SessionLocked

SETUP = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, session TEXT, line BLOB);
CREATE INDEX IF NOT EXISTS of_session ON records (session, number);
"""


class Database:
    """The records of all sessions, and the agents of the open sessions."""

    def __init__(self, path: str | Path) -> None:
        self.agents: WeakValueDictionary[str, SQLiteSession] = WeakValueDictionary()
        self.lock = threading.RLock()  # agents may record in several threads
        self.process = os.getpid()
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        try:
            self.db.executescript(SETUP)
        except sqlite3.OperationalError as error:
            self.db.close()
            raise SessionLocked(f"{path} is in use by another process: {error}") from error

    def execute(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement, and return all rows. An error is an OSError, as it is with files."""
        if os.getpid() != self.process:  # what it wrote would be lost
            raise SessionLocked("a fork can't use the database of its parent process")
        try:
            with self.lock:
                return self.db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise OSError(str(error)) from error


class SQLiteSession(Session):
    """Stores the session in `database`. Close the database after the agents."""

    database: Database

    def open_session(self, name: str, *, new: bool = False) -> Iterable[bytes]:
        with self.database.lock:
            sql = "SELECT line FROM records WHERE session = ? ORDER BY number"
            lines = [line for (line,) in self.database.execute(sql, name)]
            if new and (lines or name in self.database.agents):
                raise FileExistsError(f"the session {name!r} exists already")
            if name in self.database.agents:
                raise SessionLocked(f"the session {name!r} is open elsewhere")
            self.database.agents[name] = self
            return lines

    def write_line(self, line: bytes) -> None:
        if self.database.agents.get(self.session or "") is not self:
            raise ValueError(f"the session {self.session!r} is closed")
        add = "INSERT INTO records (session, line) VALUES (?, ?)"
        self.database.execute(add, self.session, line)

    def close(self) -> None:
        if self.session and self.database.agents.get(self.session) is self:
            try:
                self.save()
            finally:
                del self.database.agents[self.session]


class MyAgent(SQLiteSession, Agent):
    """An agent with persistent sessions."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder, "all.db"))
        for question, answer in [("What is 2 + 3?", "5"), ("And twice that?", "10")]:
            llm = ScriptedModel(answer)
            with MyAgent(llm=llm, session="sums", database=database) as agent:
                print(question, agent.run_sync(question).text)
        sizes = "SELECT session, COUNT(*), SUM(LENGTH(line)) FROM records GROUP BY session"
        for name, records, size in database.execute(sizes):
            print(f"{name}: {records} records, {size} bytes")
        database.db.close()


if __name__ == "__main__":
    main()
