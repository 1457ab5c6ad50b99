"""A session file: JSON lines that are only appended, with a lock while it is open.

Copy with: errors.py, messages.py, common/records.py, waiting.py.

The first line is a header, each further line is a record. A line is acknowledged once `append`
returns: the operating system has it then, and a killed process loses none. A torn last line, which
a kill or a full disk leaves, was never acknowledged: the next append cuts it away.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from ..errors import SessionLocked
from ..messages import Record, Reset, RunStart, Unknown
from ..waiting import logger
from .records import load_record

SESSION_DIR = "~/.agentloop/sessions"
HEADER = b'{"type":"session","schema":2}'  # one more when an old record would be misread
# CON and its like are devices on Windows, whatever their ending.
SESSION_NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)$)[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int) -> None:
        os.lseek(fd, 1 << 62, os.SEEK_SET)  # far behind the end: a locked byte cannot be read
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_APPEND, 0o600)


def _sync_folder(folder: Path) -> None:
    """Let a moved file survive a power cut, on systems that can open folders."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def session_path(name: str, session_dir: str | Path = SESSION_DIR) -> Path:
    """Return the file of the session with this name. ValueError: no session can have this name."""
    if not SESSION_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r:.200} cannot be a session's name: use 1 to 128 of the letters, digits, _ and "
            "-, begin with a letter or digit, and avoid device names such as CON"
        )
    return Path(session_dir).expanduser() / f"{name}.jsonl"


class SessionFile(FileIO):
    """A session file, open and locked until `close`. Only its owner can read it.

    fsync: let `sync` wait for the disk. Otherwise a power cut may lose the newest lines.
    new: raise FileExistsError if the file is there.
    """

    def __init__(self, path: Path, *, fsync: bool = True, new: bool = False) -> None:
        for folder in path.parents[::-1]:  # with parents=True, only the last one is private
            folder.mkdir(0o700, exist_ok=True)
        super().__init__(path, "xb" if new else "ab", opener=_open_private)
        try:
            _lock(self.fileno())
        except OSError as error:
            raise SessionLocked(
                f"the session {path.stem!r} is open elsewhere: close() it there first, "
                "or fork() it into a session of its own"
            ) from error
        lines = read_lines(path)
        self.path, self.fsync = path, fsync
        self._owner = os.getpid()
        self._end = sum(map(len, lines))  # of the last whole line
        self._torn = True  # a part of a line may stand behind it
        if not lines:
            self.append(HEADER)

    def append(self, line: bytes) -> None:
        """Add a line, which from then on survives a kill. OSError: it is not added; try again."""
        fd = self._check()
        if self._torn:
            os.ftruncate(fd, self._end)
        self._torn, data = True, line + b"\n"
        while data:
            data = data[os.write(fd, data) :]
        self._torn, self._end = False, self._end + len(line) + 1

    def replace(self, lines: Iterable[bytes]) -> None:
        """Replace all lines in one atomic step: a kill leaves the old lines or the new ones.

        The new file is locked before it takes the place of the old. OSError: nothing has changed.
        """
        self._check()
        self.remove_unfinished()
        path = self.path.with_suffix(".replacing")
        new = SessionFile(path, fsync=self.fsync, new=True)
        try:
            for line in lines:
                new.append(line)
            new.sync()
            self._take_place(new)
        except BaseException:
            new.close()
            path.unlink(missing_ok=True)
            raise

    def remove_unfinished(self) -> None:
        """Delete the file of a `replace` that was killed."""
        self.path.with_suffix(".replacing").unlink(missing_ok=True)

    def _take_place(self, new: SessionFile) -> None:
        """Move a new file to this path, and continue with its descriptor, which holds its lock."""
        if sys.platform == "win32":  # open files cannot be moved: the session is unlocked meanwhile
            super(SessionFile, new).close()
            super().close()
            try:
                os.replace(new.path, self.path)
            finally:
                super().__init__(self.path, "ab", opener=_open_private)
                _lock(self.fileno())
        else:
            os.replace(new.path, self.path)
            os.dup2(new.fileno(), self.fileno(), inheritable=False)
            super(SessionFile, new).close()  # SessionFile.close would unlock the session
        self._torn, self._end = False, new._end
        if self.fsync:
            _sync_folder(self.path.parent)

    def sync(self) -> None:
        """Wait until all lines survive a power cut. OSError: they do not, or the file is gone."""
        fd = self._check()
        if self.fsync:
            os.fsync(fd)

    def close(self) -> None:
        """Close the file, and unlock it: a child process that was forked may have it, too.

        In such a child, only close it: the lock stays with the process that has opened it.
        """
        if sys.platform != "win32" and not self.closed and os.getpid() == self._owner:
            fcntl.flock(self.fileno(), fcntl.LOCK_UN)
        super().close()

    def _check(self) -> int:
        """Return the file descriptor. ValueError: it is closed; OSError: its path has another."""
        if self.closed:
            raise ValueError(
                f"the session {self.path.stem!r} is closed: make an agent with its name again"
            )
        fd = self.fileno()
        if not os.path.samestat(os.fstat(fd), os.stat(self.path)):
            raise OSError(
                f"{self.path} was replaced while it was open, and what follows would be lost: "
                "close() the agent, and make one with this session again"
            )
        return fd

    def __del__(self) -> None:
        super().close()  # the lock goes with the last process that has the file


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a session file, its header first, without a torn last line.

    Raises ValueError if it is no session, or if another version has made it.
    """
    with path.open("rb") as file:
        start = file.read(len(HEADER))
        if not HEADER.startswith(start):  # a header may be torn
            raise ValueError(
                f"{path} begins with {start!r}, so it is no session of schema 2. Version 0.5.0 and "
                "older ones wrote schema 1: convert the folder with examples/recipes/"
                "old_sessions.py. A newer version may have made a higher one"
            )
        file.seek(0)
        lines = [*file]
    if lines and not lines[-1].endswith(b"\n"):
        logger.warning("%s: the last line is cut off, %d bytes", path, len(lines.pop()))
    return lines


def read_log(path: str | Path) -> list[Record]:
    """Return the log in a session file, also of an open one. ValueError: it is no session."""
    return load_log(read_lines(Path(path)))


def load_log(lines: Iterable[bytes]) -> list[Record]:
    """Return the log in a session's lines: the newest Reset and what follows it, each run once.

    A line that cannot be read becomes an `Unknown` record of type "unreadable" with the line's
    number. So it keeps its place in the log, and `Summary.kept_from` counts on.
    """
    log = list[Record]()
    for number, line in enumerate(lines, 1):
        if line.startswith(HEADER):
            continue
        try:
            record = load_record(line)
            if not isinstance(record, Record):
                raise ValueError(f"a {type(record).__name__} is no record of a log")
        except ValueError as error:
            logger.warning("line %d of the session cannot be read: %s", number, error)
            record = Unknown({"type": "unreadable", "line": number, "error": str(error)})
        if isinstance(record, Reset):
            log.clear()
        elif isinstance(record, RunStart):
            log = without_attempt(log, record)
        log.append(record)
    return log


def without_attempt(log: list[Record], start: RunStart) -> list[Record]:
    """Return the log up to an earlier attempt at the same run, or the log itself.

    The `workflow_run` of a RunStart names a run that may be begun again.
    """
    run = start.workflow_run
    for at, old in enumerate(log):
        if run and isinstance(old, RunStart) and old.workflow_run == run:
            return log[:at]
    return log
