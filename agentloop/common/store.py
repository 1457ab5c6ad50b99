"""Session files: append-only JSON lines, locked while open.

Copy with: common/records.py, errors.py, waiting.py and their imports.

The first line is a header, and every other line is a record. When `append` returns, the operating
system has the line, so it survives if the process is killed. A kill or a full disk may leave half
of a last line; nobody has relied on it yet, and the next `append` removes it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from threading import RLock
from weakref import WeakSet

from ..errors import SessionLocked
from ..messages import Unknown
from ..transcript import Log, Record
from ..waiting import logger
from .records import dump_record, load_record

SESSION_DIR = "~/.agentloop/sessions"
HEADER = b'{"type":"session","schema":2}'  # counts up if older records would be misread
REPLY, START = b'"type":"assistant"', b'"type":"tool_start"'  # also inside a sub-agent's record
# CON and the like are devices on Windows, with any suffix
SESSION_NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com\d|lpt\d)$)[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int) -> None:
        # far beyond the end of the file, because nobody can read locked bytes
        os.lseek(fd, 1 << 62, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_APPEND, 0o600)


def session_path(name: str, session_dir: str | Path = SESSION_DIR) -> Path:
    """The path of a session's file. Raises ValueError if no session can have the name."""
    if not SESSION_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r:.200} isn't a valid session name: use 1 to 128 letters, digits, _ and -, "
            "begin with a letter or a digit, and avoid names of devices, such as CON"
        )
    return Path(session_dir).expanduser() / f"{name}.jsonl"


class SessionFile(FileIO):
    """A session file, open and locked until `close`. Only its owner may read it. Thread-safe.

    fsync: whether `sync` waits for the disk. If not, a power failure may lose the newest lines.
    new: whether to raise FileExistsError if the file exists.

    If you fork the process while the file is open, it's closed in the new process. Raises
    ValueError for a link, a folder or a device.
    """

    def __init__(self, path: Path, *, fsync: bool = True, new: bool = False) -> None:
        self._writing = RLock()  # after a write, and before `_end` is set, the size looks wrong
        # parents=True would give only the last directory these permissions
        for folder in path.parents[::-1]:
            folder.mkdir(0o700, exist_ok=True)
        if path.is_symlink():  # the target may belong to another program
            raise ValueError(f"{path} is a link: replace it with the file, or choose another name")
        check_is_file(path)
        if new and path.exists():
            raise FileExistsError(f"{path} exists: open it in an agent with session={path.stem!r}")
        super().__init__(path, "xb" if new else "ab", opener=_open_private)
        try:
            _lock(self.fileno())
        except (BlockingIOError, PermissionError) as error:  # others: the disk has no locks
            raise SessionLocked(
                f"the session {path.stem!r} is open elsewhere: close it there first, or fork it "
                "there into a separate session"
            ) from error
        lines = read_lines(path)
        self.path, self.fsync = path.absolute(), fsync  # a tool may change the working directory
        self._end = sum(map(len, lines))  # the end of the last complete line
        self._torn = True  # half a line may follow
        try:
            if not lines:
                self.append(HEADER)
        except OSError:
            if new:
                self.discard()
            raise
        _open_files.add(self)

    def append(self, line: bytes) -> None:
        """Append a line, which then survives a kill. If this raises OSError, it isn't there."""
        with self._writing:
            fd = self._check()
            if self._torn:
                os.ftruncate(fd, self._end)
            self._torn, data = True, line + b"\n"
            while data:
                data = data[os.write(fd, data) :]
            self._torn, self._end = False, self._end + len(line) + 1

    def discard(self) -> None:
        """Close and delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Wait until all lines are on the disk and survive a power failure."""
        with self._writing:
            fd = self._check()
        if self.fsync:
            os.fsync(fd)

    def close(self) -> None:
        """Close the file and release the lock."""
        with self._writing:  # another file may get the descriptor, and a write would end up there
            if sys.platform != "win32" and not self.closed:
                fcntl.flock(self.fileno(), fcntl.LOCK_UN)
            super().close()

    def _check(self) -> int:
        """The file descriptor.

        Raises ValueError if the file is closed, and OSError if somebody else has changed it.
        """
        if self.closed:
            raise ValueError(
                f"the session {self.path.stem!r} is closed: create an agent with its name again"
            )
        fd = self.fileno()
        status = os.fstat(fd)
        is_own_size = status.st_size == self._end or (self._torn and status.st_size > self._end)
        is_own_file = self.path.exists() and os.path.samestat(status, os.stat(self.path))
        if not is_own_size or not is_own_file:
            raise OSError(
                f"{self.path} was replaced, changed or deleted while it was open, so more records "
                "would be lost: create an agent with this session again. To keep this agent's "
                'records, write agent.fork(session="other")'
            )
        return fd

    def __del__(self) -> None:
        super().close()  # the last process to close the file releases the lock


_open_files = WeakSet[SessionFile]()


def _close_files_of_parent() -> None:
    """Close the sessions of the parent process, but leave them locked.

    If not, a worker could write between the lines of its parent, and keep the lock after it.
    """
    for file in _open_files:
        FileIO.close(file)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_files_of_parent)


def check_is_file(path: Path) -> None:
    """Raise ValueError for a pipe, a device or a folder. To open a pipe may take forever."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a folder, a pipe or a device, not a session")


def read_lines(path: Path) -> list[bytes]:
    """Read the complete lines of a session file, with the header.

    Raises ValueError if it's another kind of file, or a session of another schema.
    """
    check_is_file(path)
    with path.open("rb") as file:
        start = file.read(len(HEADER))
        if not HEADER.startswith(start):  # a kill may have left part of it
            raise ValueError(
                f"{path} starts with {start!r}, so it isn't a session that this version reads "
                "(schema 2): pass another file, or install the version that wrote it"
            )
        file.seek(0)
        lines = file.readlines()
    if lines and not lines[-1].endswith(b"\n"):
        logger.warning("%s: the last line is incomplete, %d bytes", path, len(lines.pop()))
    return lines


def read_log(path: str | Path) -> list[Record]:
    """Read the log of a session file, which may be open. Raises ValueError for any other file."""
    return load_log(read_lines(Path(path)))


def write_log(path: str | Path, records: Iterable[Record]) -> None:
    """Write a new session file. Raises FileExistsError if there's one already.

    If this raises OSError, because the disk is full for example, it leaves no file.
    """
    file = SessionFile(Path(path), new=True)
    try:
        for record in records:
            file.append(dump_record(record))
        file.sync()
    except BaseException:
        file.discard()
        raise
    file.close()


def load_log(lines: Iterable[bytes]) -> list[Record]:
    """Read the log from a session's lines: the records that still count.

    A line that can't be read becomes an `Unknown` record of type "unreadable" with its number, so
    that positions in the log, such as `Summary.kept_from`, stay the same. Raises ValueError if it's
    a reply or the start of a call: without it, calls would be made again.
    """
    log = Log()
    for number, line in enumerate(lines, 1):
        if line.startswith(HEADER):
            continue
        try:
            record = load_record(line)
            if not isinstance(record, Record):
                raise ValueError(f"a {type(record).__name__} isn't a record of a log")
        except ValueError as error:
            if REPLY in line or START in line:
                raise ValueError(
                    f"line {number} of the session is a reply or the start of a call, and can't be "
                    f"read ({error}): repair the line, or restore a backup"
                ) from None
            logger.warning("line %d of the session can't be read: %s", number, error)
            record = Unknown({"type": "unreadable", "line": number, "error": str(error)})
        log.append(record)
    return [*log]
