"""Where sessions are kept: in a directory, one append-only file of JSON lines for each.

Copy with: errors.py.

A file begins with a header line, then comes one record a line. `append` hands a line over to the
operating system before it returns, so that a killed process loses none; `sync` puts all of them on
the disk. What a kill or a full disk left of a line was never acknowledged: it is cut away by the
next append, or when the file is opened again.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, cast
from weakref import WeakSet

from pydantic_core import from_json, to_json

from .errors import SessionLocked

logger = logging.getLogger("agentloop")

SCHEMA = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
RESERVED = re.compile(r"(?i:con|prn|aux|nul|(com|lpt)[0-9])")  # devices on Windows, with any suffix
_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_BLOCK = 64 * 1024
_HEADER = b'{"type":"session"'  # how each one begins

if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int) -> bool:
        os.lseek(fd, 1 << 62, os.SEEK_SET)  # far behind the end: a locked byte cannot be read
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _let_go() -> None:
        """In a child process: the parent's sessions stay the parent's, and free when it ends."""
        for file in list(_open_files):
            file.close()

    os.register_at_fork(after_in_child=_let_go)


class Stored(NamedTuple):
    """A session in a store: its name, when it was written to (Unix time), its size in bytes."""

    name: str
    modified: float
    size: int


class Journal(Protocol):
    """An open session. Nobody else can open it until it is closed, or its process has died."""

    def append(self, line: bytes) -> None:
        """Add a line, which from then on survives a kill. OSError: it is not added; try again."""
        ...

    def sync(self) -> None:
        """Wait until all lines survive a power cut. OSError: they do not, or are in no file."""
        ...

    def close(self) -> None: ...


class SessionStore(Protocol):
    """A place for sessions. All four raise OSError, and ValueError for a name that cannot be."""

    def list(self) -> Iterable[Stored]: ...

    def read(self, name: str) -> Iterator[tuple[int, bytes]]:
        """The session's lines with their numbers, also while it is open elsewhere."""
        ...

    def open(self, name: str) -> Journal:
        """The session, new if there is none. SessionLocked: it is open somewhere."""
        ...

    def create(self, name: str, lines: Iterable[bytes]) -> Journal:
        """A new session with these lines, all or none. FileExistsError: there is one."""
        ...


class FileStore:
    """Sessions as files `<name>.jsonl` in a directory; both are for the owner's eyes only.

    fsync: whether `sync` waits for the disk. Without, a power cut may lose the newest lines.
    """

    def __init__(self, directory: str | Path, *, fsync: bool = True) -> None:
        self.directory = Path(directory).expanduser()
        self.fsync = fsync

    def list(self) -> Iterable[Stored]:
        with suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            for entry in entries:
                name, dot, suffix = entry.name.partition(".")
                if dot and suffix == "jsonl" and is_name(name):
                    with suppress(FileNotFoundError):  # deleted just now
                        info = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(info.st_mode):
                            yield Stored(name, info.st_mtime, info.st_size)

    def read(self, name: str) -> Iterator[tuple[int, bytes]]:
        yield from _lines(_open(self._path(name), os.O_RDONLY))

    def open(self, name: str) -> SessionFile:
        path = self._path(name)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = SessionFile(path, _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), self.fsync)
        try:
            file.take()
        except BaseException:
            file.close()
            raise
        if self.fsync:
            _sync_directory(self.directory)
        return file

    def create(self, name: str, lines: Iterable[bytes]) -> SessionFile:
        path = self._path(name)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{secrets.token_hex(8)}")  # no name of a session
        try:
            with open(_open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.writelines(line + b"\n" for line in (header(), *lines))
            os.link(draft, path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            why = f"there is a session {name!r} already"
            raise FileExistsError(errno.EEXIST, why, str(path)) from None
        finally:
            with suppress(OSError):
                draft.unlink()
        return self.open(name)

    def _path(self, name: str) -> Path:
        if not is_name(name):
            raise ValueError(
                f"{name!r:.200} cannot be a session's name: 1 to 128 of the letters, digits, "
                "_ and -, the first a letter or digit, and no device name such as CON"
            )
        return self.directory / f"{name}.jsonl"


class SessionFile:
    """An open session file, locked as long as it is open."""

    def __init__(self, path: Path, fd: int, fsync: bool) -> None:
        self.path, self._fd, self._fsync = path, fd, fsync
        self._end = 0  # of the last whole line
        self._torn = False  # there may be part of a line behind it
        self._unsynced = True
        _open_files.add(self)

    def take(self) -> None:
        """Lock the file, refuse what is no session, and make it end with a whole line."""
        if not _lock(self._fd):
            raise SessionLocked(
                f"the session {self.path.stem!r} is open elsewhere: close() it there first, "
                "or fork() it into a session of its own"
            )
        self._check_that_it_is_there()
        self._check_that_it_is_a_session()
        size = os.lseek(self._fd, 0, os.SEEK_END)
        self._end = _end_of_last_line(self._fd, size)
        if self._end < size:
            os.lseek(self._fd, self._end, os.SEEK_SET)
            tail = os.read(self._fd, size - self._end)
            if isinstance(_json(tail), dict):  # only the line's end is missing
                self._end = size + os.write(self._fd, b"\n")
            else:
                logger.warning("%s: the last line is cut off, %d bytes", self.path, len(tail))
                os.ftruncate(self._fd, self._end)
        if self._end == 0:
            self.append(header())

    def append(self, line: bytes) -> None:
        self._check_that_it_is_open()
        if self._torn:
            os.ftruncate(self._fd, self._end)
        data = memoryview(line + b"\n")
        done, self._torn, self._unsynced = 0, True, True
        while done < len(data):
            done += os.write(self._fd, data[done:])
        self._end, self._torn = self._end + done, False

    def sync(self) -> None:
        self._check_that_it_is_open()
        self._check_that_it_is_there()
        if self._fsync and self._unsynced:
            self._unsynced = False  # before: another thread may append meanwhile
            try:
                os.fsync(self._fd)
            except BaseException:
                self._unsynced = True
                raise

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open session cannot be copied or pickled: use fork() of its agent")

    def _check_that_it_is_open(self) -> None:
        if self._fd < 0:
            raise ValueError(f"the session {self.path.stem!r} is closed")

    def _check_that_it_is_a_session(self) -> None:
        """ValueError: it is of a newer schema, or none of its lines is one of a session."""
        seen = 0
        for seen, (number, line) in enumerate(_lines(os.dup(self._fd)), 1):
            cut = _HEADER.startswith(line.strip(b"\0")[: len(_HEADER)])  # by a kill or a power cut
            if number > seen or cut or isinstance(_json(line), dict):  # or a header came before
                return
        if seen:
            raise ValueError(f"{self.path} is no session: it was left as it is")

    def _check_that_it_is_there(self) -> None:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._fd), os.lstat(self.path)):
                return
        why = "the session's file was deleted or replaced while it was open"
        raise FileNotFoundError(errno.ENOENT, why, str(self.path))


_open_files: WeakSet[SessionFile] = WeakSet()


def is_name(name: object) -> bool:
    """Whether a session can have this name: it is a file's name on every system."""
    is_plain = isinstance(name, str) and NAME.fullmatch(name)
    return bool(is_plain and not RESERVED.fullmatch(is_plain[0]))


def header() -> bytes:
    return to_json({"type": "session", "schema": SCHEMA, "at": time.time()})


def _open(path: Path, flags: int) -> int:
    """The file's descriptor. OSError: it is a symbolic link, or no regular file."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.ELOOP, "a session has to be a regular file, not a link", str(path))
    return os.open(path, flags | _FLAGS, 0o600)


def _sync_directory(directory: Path) -> None:
    """Make a new file's name survive a power cut. Windows has no such call, and needs none."""
    if sys.platform != "win32":
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _lines(fd: int) -> Iterator[tuple[int, bytes]]:
    """The numbered lines behind the header. ValueError: the header is of a newer schema."""
    with open(fd, "rb") as file:
        file.seek(0)
        for number, line in enumerate(file, 1):  # bytes: split at b"\n" and nowhere else
            if number > 1 or not _is_header(line):
                yield number, line.rstrip(b"\n")


def _is_header(line: bytes) -> bool:
    data = _json(line)
    if not isinstance(data, dict):
        return False
    fields = cast(dict[str, Any], data)
    if fields.get("type") == "session" and fields.get("schema") not in range(1, SCHEMA + 1):
        raise ValueError(
            f"this session has schema {fields.get('schema')!r:.20}, and this version of agentloop "
            f"reads {SCHEMA}: it was left as it is, use a newer version"
        )
    return fields.get("type") == "session"


def _json(line: bytes) -> Any:
    try:
        return from_json(line)
    except ValueError:
        return None


def _end_of_last_line(fd: int, size: int) -> int:
    """Where the last whole line ends, looked for from the end of the file."""
    at = size
    while at:
        start = max(0, at - _BLOCK)
        os.lseek(fd, start, os.SEEK_SET)
        newline = os.read(fd, at - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        at = start
    return 0
