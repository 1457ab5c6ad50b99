"""Tools for the files of one folder: read, glob, grep, write, edit. No path leads out of it.

Copy with: tools.py and what it names.

    agent = Agent(llm=..., tools=Workspace("project").tools)

The tools are functions of this module that get their folder by `Depends(workspace)`. So
`ws.bind(read, grep)` offers some of them, or tools of your own that ask for a Workspace too, and
`dependency_overrides={workspace: lambda: Workspace(tmp_path)}` moves them all into a test's folder.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Annotated, Any, BinaryIO, NamedTuple

from ..depends import Depends
from ..errors import ToolError
from ..tools import FunctionTool, Tool, in_thread, is_approved, tool
from ..waiting import within

RULE = "Paths are relative to the workspace root and stay in it: 'src/main.py', not '/src/main.py'."
WRITE_DENIED = (
    "Denied: this {} was not approved, and nothing was changed. Do not just try it again."
)
MAX_READ = 50_000  # bytes that one `read` returns
MAX_LINE = 2_000  # bytes of one line that it shows
MAX_SCAN = 200_000_000  # bytes that it goes through to get there
MAX_EDIT = 10_000_000  # bytes of a file that `edit` and `write` replace
MAX_FOUND = 200  # lines that `glob` and `grep` return
MAX_NAMES = 1000  # files of a folder, or lines of a file, that are compared to find a near one
SEARCH_SECONDS = 20.0
SKIPPED = (".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox")

_GIT = re.compile(r"\.git[ .]*(:.*)?", re.IGNORECASE)  # NTFS ignores what may follow the name
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_DIRECTORY", 0)
_TO_READ = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | getattr(os, "O_BINARY", 0)


class File(NamedTuple):
    """What a file was at one moment. `stamp` is different after each change."""

    data: bytes
    mode: int
    stamp: tuple[int, ...]


class Workspace:
    """A folder that tools work in.

    root: the folder. It has to exist.
    approve: called with a tool's name and its arguments before `write` and `edit`; plain (it runs
        in a thread) or async. `path` is the file that would change: not a link that leads to it.
        Anything but True denies: an error, and no answer in time, too.
    approve_timeout: how many seconds it may take.

    A model that can only call these tools reads and changes nothing outside of the folder. (A hard
    link into it can be read; a write gives the name a file of its own.) It reads what is in `.git`
    and changes nothing there: git runs the programs that its configuration and its hooks name. Next
    to a tool that runs programs, they promise that for themselves only.
    """

    def __init__(
        self,
        root: str | Path = ".",
        *,
        approve: Callable[[str, dict[str, Any]], bool | Awaitable[bool]] | None = None,
        approve_timeout: float = 300.0,
    ) -> None:
        self.root = Path(root).resolve(strict=True)
        if not self.root.is_dir():
            raise NotADirectoryError(f"a workspace is a folder, and {str(root)!r} is none")
        self.approve, self.approve_timeout = approve, approve_timeout
        self.seen: dict[Path, tuple[int, ...]] = {}  # the stamps of what the model knows

    @property
    def tools(self) -> list[Tool]:
        """All tools of this module, at work in this folder."""
        return self.bind(read, glob, grep, write, edit)

    def bind(self, *tools: FunctionTool[..., Any]) -> list[Tool]:
        """These tools, with this workspace where they ask for one."""
        return [each.bind({workspace: lambda: self}) for each in tools]

    # ---- what the tools are made of

    def resolve(self, path: str) -> Path:
        """Where a path leads, its links followed. ToolError if that is not in the workspace."""
        foreign = os.sep == "/" and ("\\" in path or re.match("[A-Za-z]:", path))
        if foreign or path.startswith("~"):
            raise ToolError(f"{path!r:.200}: no backslash, drive or leading ~ here. {RULE}")
        with explained(path):
            target = Path(os.path.realpath(self.root / path))
        if not target.is_relative_to(self.root):
            raise ToolError(f"{path!r:.200} leads out of the workspace. {RULE}")
        return target

    def name(self, target: Path) -> str:
        """A file's path as the model should write it."""
        return target.relative_to(self.root).as_posix()

    @contextmanager
    def open(self, target: Path) -> Generator[tuple[BinaryIO, os.stat_result]]:
        """A file to read. ToolError if there is none, or if it is a folder, a pipe or a device."""
        try:
            with _folder_of(target, self.root) as (prefix, folder):
                file = os.open(prefix + target.name, _TO_READ, dir_fd=folder)
        except FileNotFoundError:
            raise ToolError(self.missing(target)) from None
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"{self.name(target)} is no regular file (a pipe or a device).")
            yield stream, status

    def load(self, target: Path) -> File | None:
        """A file that is to be changed, or None if there is none. ToolError if it must not be."""
        if any(map(_GIT.fullmatch, target.relative_to(self.root).parts)):
            raise ToolError(f"{self.name(target)} is git's own: it can be read, and not changed.")
        if not target.exists():
            return None
        with self.open(target) as (stream, status):
            data = stream.read(MAX_EDIT + 1)
        if len(data) > MAX_EDIT:
            raise ToolError(f"{self.name(target)} is too large to change: {status.st_size:,} bytes")
        if not status.st_mode & 0o222:
            raise ToolError(f"{self.name(target)} is read-only.")
        return File(data, stat.S_IMODE(status.st_mode), _stamp(status))

    def store(self, target: Path, data: bytes, before: File | None) -> None:
        """Replaces a file at once or not at all; ToolError if it is not what it was `before`.

        Nothing is awaited in here: no cancel and no other call of this event loop comes between.
        """
        with _folder_of(target, self.root, make=True) as (prefix, folder):
            temporary = f"{prefix}.{secrets.token_hex(8)}.tmp"
            file = os.open(temporary, _CREATE, before.mode if before else 0o666, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(file)
                    stamp = _stamp(os.fstat(file))
                if before:
                    os.chmod(temporary, before.mode, dir_fd=folder)
                if self.load(target) != before:
                    raise ToolError(f"{self.name(target)} has just changed on disk: read it again.")
                os.replace(temporary, prefix + target.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
        self.seen[target] = stamp

    async def ask(self, name: str, **arguments: Any) -> None:
        """ToolError unless `approve` says True, in time; nothing if there is nobody to ask."""
        if not await is_approved(self.approve, name, arguments, seconds=self.approve_timeout):
            raise ToolError(WRITE_DENIED.format(name))

    def existing(self, path: str) -> Path:
        """As `resolve`; ToolError if nothing is there."""
        target = self.resolve(path)
        with explained(path):
            if not target.exists():
                raise ToolError(self.missing(target))
        return target

    def missing(self, target: Path) -> str:
        """What to say if there is no such file: which ones have a name like it."""
        near: list[str] = []
        with suppress(OSError):
            near = get_close_matches(target.name, os.listdir(target.parent)[:MAX_NAMES])
        names = ", ".join(self.name(target.with_name(each)) for each in near)
        hint = f"Did you mean: {names}?" if names else f"Look for it with glob. {RULE}"
        return f"There is no {self.name(target)}. {hint}"


def workspace() -> Workspace:
    """The dependency that the tools ask for. It is always replaced, or it says how."""
    raise LookupError(
        "no workspace is set: use tools=Workspace('path').tools, or "
        "dependency_overrides={workspace: lambda: Workspace('path')}"
    )


InWorkspace = Annotated[Workspace, Depends(workspace)]


# ---- the tools


@tool(idempotent=True, timeout=60)
def read(path: str, offset: int = 1, limit: int = 2000, *, ws: InWorkspace) -> str:
    """Reads a text file. Each line comes with its number and a tab in front.

    Args:
        path: The file, relative to the workspace root.
        offset: The number of the first line to read; the file begins with line 1.
        limit: How many lines to read at most.
    """
    target, offset = ws.resolve(path), max(1, offset)
    shown, size = list[str](), 0
    with explained(path), ws.open(target) as (stream, status):
        if b"\0" in stream.read(8192):
            raise ToolError(f"{path} is a binary file of {status.st_size:,} bytes.")
        stream.seek(0)
        for number, line in enumerate(islice(_raw_lines(stream), offset - 1, None), offset):
            if len(shown) >= max(1, limit) or size > MAX_READ:
                shown.append(f"[More follows: read on with offset={number}.]")
                break
            size += len(line)
            shown.append(f"{number:6}\t{line.decode(errors='replace')}")
        if stream.tell() >= MAX_SCAN:
            shown.append(f"[Not read on after {MAX_SCAN:,} bytes of the file: use grep.]")
    ws.seen[target] = _stamp(status)
    if any("\ufffd" in line for line in shown):
        shown.append("[\ufffd stands for bytes that are not UTF-8; edit leaves them as they are.]")
    return "\n".join(shown) or f"[The file is empty, or has no line {offset}.]"


@tool(idempotent=True)
async def glob(pattern: str, path: str = ".", *, ws: InWorkspace) -> str:
    """Lists files by name, one path a line, such as those that match "src/**/*.py".

    Skips .git, node_modules, .venv and the like, unless `path` is in them.

    Args:
        pattern: *, ?, [abc], {a,b}; ** is any number of folders. Without a /, at any depth.
        path: The folder to look in, relative to the workspace root.
    """
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
        raise ToolError(f"{pattern!r:.200}: a pattern goes down from `path`. {RULE}")
    start = ws.name(ws.existing(path))
    command = _finder(start, pattern, "", False)
    return await _search(command, ws.root, f"files like {pattern!r:.200} there")


@tool(idempotent=True)
async def grep(
    pattern: str, path: str = ".", glob: str = "", ignore_case: bool = False, *, ws: InWorkspace
) -> str:
    """Searches text files for a regular expression: a line of "path:line:text" for each match.

    Args:
        pattern: The regular expression. It is matched line by line.
        path: The file or folder to search, relative to the workspace root.
        glob: Search only files with names like this, such as "*.py".
        ignore_case: Whether upper and lower case are the same.
    """
    start = ws.name(ws.existing(path))
    if not pattern:
        raise ToolError("The pattern is empty: to list files, use glob.")
    command = _finder(start, glob, pattern, ignore_case)
    if program := shutil.which("rg"):
        options = ["--ignore-case"] * ignore_case + [f"--glob={glob}"] * bool(glob)
        command = [program, *RIPGREP, *options, f"--regexp={pattern}", "--", start]
    return await _search(command, ws.root, f"lines like {pattern!r:.200} there")


@tool(parallel=False)
async def write(path: str, content: str, *, ws: InWorkspace) -> str:
    """Writes a whole file, and makes its folders. To change a part of one, use edit.

    A file that is there already has to be read first.

    Args:
        path: The file, relative to the workspace root.
        content: Its whole new text.
    """
    target = ws.resolve(path)
    with explained(path):
        before, data = ws.load(target), content.encode()
        if before and before.data and ws.seen.get(target) != before.stamp:
            known = "has changed on disk since you read it" if target in ws.seen else "exists"
            raise ToolError(f"{path} {known}: read it before you overwrite it.")
        if before and before.data == data:
            return f"{path} has this content already."
        await ws.ask("write", path=ws.name(target), content=content)
        ws.store(target, data, before)
    return f"{'Overwrote' if before else 'Created'} {ws.name(target)}: {len(data):,} bytes."


@tool(parallel=False)
async def edit(
    path: str, old_text: str, new_text: str, replace_all: bool = False, *, ws: InWorkspace
) -> str:
    """Replaces text in a file. The old text has to be there exactly once.

    Args:
        path: The file, relative to the workspace root.
        old_text: What to replace, exactly as in the file: white space too, no line numbers.
        new_text: What to put in its place.
        replace_all: Replace it wherever it is.
    """
    if not old_text or old_text == new_text:
        problem = "is the same as new_text" if old_text else "is empty (write makes new files)"
        raise ToolError(f"Nothing to do: old_text {problem}.")
    target = ws.resolve(path)
    with explained(path):
        before = ws.load(target)
        if before is None:
            raise ToolError(ws.missing(target))
        if b"\0" in before.data:
            raise ToolError(f"{path} is a binary file of {len(before.data):,} bytes.")
        text = before.data.decode(errors="surrogateescape")  # other bytes stay what they are
        old, new = _with_line_ends_of(text, old_text, new_text)
        places = [at.start() for at in islice(re.finditer(re.escape(old), text), 10)]
        if not places:
            raise ToolError(await in_thread(_not_found, path, text, old))
        lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in places)
        lines += ", ..." * (len(places) == 10)
        if not replace_all and text.find(old, places[0] + 1) >= 0:  # they may overlap
            raise ToolError(
                f"old_text is in {path} more than once, at lines {lines}: "
                "take in more of the lines around it, or set replace_all."
            )
        arguments = {"old_text": old_text, "new_text": new_text, "replace_all": replace_all}
        await ws.ask("edit", path=ws.name(target), **arguments)
        changed = ws.seen.get(target, before.stamp) != before.stamp
        ws.store(target, text.replace(old, new).encode(errors="surrogateescape"), before)
    note = " It had changed on disk since you read it: the rest may not be what you know."
    return f"Edited {ws.name(target)} at line {lines}.{note * changed}"


# ---- how they do it


@contextmanager
def explained(path: str) -> Generator[None]:
    """Says what the system has against a path, without the folders outside of the workspace."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolError(f"{path!r:.200}: {reason}.") from error


@contextmanager
def _folder_of(target: Path, root: Path, make: bool = False) -> Generator[tuple[str, int | None]]:
    """How to name what is in target's folder: a prefix, and the `dir_fd` that goes with it.

    Goes there from the root step by step and follows no link: `resolve` has followed them all, so
    one that is there now was put there since. Windows has no `dir_fd`, and gets the whole path.
    """
    if target == root or target.is_dir():
        raise ToolError(f"{target.name} is a folder: list it with glob.")
    if os.open not in os.supports_dir_fd:
        if make:
            target.parent.mkdir(parents=True, exist_ok=True)
        yield f"{target.parent}{os.sep}", None
        return
    folder = os.open(root, _FOLDER)
    try:
        for part in target.relative_to(root).parts[:-1]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            outer, folder = folder, os.open(part, _FOLDER, dir_fd=folder)
            os.close(outer)
        yield "", folder
    finally:
        os.close(folder)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _raw_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines without their ends. Long ones are cut, so that no line fills the memory."""
    while stream.tell() < MAX_SCAN and (line := stream.readline(MAX_LINE)):
        piece, cut = line, 0
        while not piece.endswith(b"\n") and (piece := stream.readline(1 << 16)):
            cut += len(piece.rstrip(b"\r\n"))
            if stream.tell() >= MAX_SCAN:
                break
        yield line.rstrip(b"\r\n") + f"[... {cut:,} more bytes]".encode() * bool(cut)


def _with_line_ends_of(text: str, old: str, new: str) -> tuple[str, str]:
    """Old and new text with CRLF if the file has it: `read` shows lines without their ends."""
    plain = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    crlf = plain[0].replace("\n", "\r\n"), plain[1].replace("\n", "\r\n")
    if text.count("\r\n") * 2 > text.count("\n") and crlf[0] in text:
        return crlf
    return (old, new) if old in text or plain[0] not in text else plain


def _not_found(path: str, text: str, old: str) -> str:
    """What to tell of an old text that is not there: where something like it is."""
    lines = [line.strip() for line in text.split("\n")]
    wanted = [line.strip() for line in old.strip().split("\n")]
    like = [i for i, line in enumerate(lines) if line == wanted[0]][:MAX_NAMES]
    if same := [i + 1 for i in like if lines[i : i + len(wanted)] == wanted]:
        where = ", ".join(map(str, same[:5]))
        mixed = 0 < text.count("\r\n") < text.count("\n")
        how = r"some end with \r\n, some with \n: edit line by line" if mixed else "copy it exactly"
        return f"old_text is at line {where} of {path}, but with other white space: {how}."
    longest = max(wanted, key=len)[:200]
    near = get_close_matches(longest, [line[:200] for line in lines[:MAX_NAMES]])
    hints = [f"\nline {lines.index(line) + 1}: {line}" for line in near if line in lines]
    found = "Near it are:" + "".join(hints) if hints else "Read it again."
    return f"old_text is not in {path}. {found}"


RIPGREP = [
    *("--no-config", "--no-messages", "--hidden", "--sort=path", "--crlf", "-nH"),
    *("--max-columns=300", "--max-columns-preview", "--path-separator=/"),
    *(f"--glob=!{name}" for name in SKIPPED),
]


def _finder(start: str, glob: str, pattern: str, ignore_case: bool) -> list[str]:
    """A command that runs `_find` in a process of its own."""
    arguments = json.dumps([start, glob, pattern, ignore_case, MAX_FOUND, SKIPPED])
    code = f"import json, sys\n{inspect.getsource(_find)}\n_find(*json.loads(sys.argv[1]))"
    return [sys.executable, "-I", "-S", "-W", "ignore", "-c", code, arguments]


def _find(
    start: str, glob: str, pattern: str, ignore_case: bool, limit: int, skipped: list[str]
) -> None:
    """Prints the files below `start` that match `glob`, or their lines that match `pattern`.

    Follows no link. Runs where it can be killed: a regular expression may take for ever.
    """
    import os
    import re
    import sys
    from contextlib import suppress

    def translated(glob: str) -> str:
        return re.sub(r"\*\*/?|\{[^{}]*\}|\[[^]]+\]|.", piece, glob, flags=re.DOTALL)

    def piece(match: re.Match[str]) -> str:
        text = match[0]
        if len(text) > 1 and text[0] == "{":
            return f"(?:{'|'.join(map(translated, text[1:-1].split(',')))})"
        if len(text) > 1 and text[0] == "[":
            return text.replace("[!", "[^")
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        return known.get(text) or re.escape(text)

    def show(text: str) -> None:
        nonlocal limit
        sys.stdout.buffer.write(text.encode(errors="surrogateescape") + b"\n")
        sys.stdout.buffer.flush()
        if (limit := limit - 1) < 0:
            sys.exit()

    def search(path: str) -> None:
        if os.path.islink(path) or not os.path.isfile(path):
            return
        number, name = 1, os.path.normpath(path).replace(os.sep, "/")
        with suppress(OSError), open(path, "rb") as file:
            if b"\0" in file.read(8192):
                return
            file.seek(0)
            while line := file.readline(1 << 20):
                text = line.decode(errors="replace").rstrip("\r\n")
                if match := regex.search(text):
                    show(f"{name}:{number}:{text[max(0, match.start() - 100) :][:300]}")
                number += line.endswith(b"\n")

    try:
        regex = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
        wanted = re.compile(translated(glob if "/" in glob else f"**/{glob or '*'}"), re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        sys.exit(f"this is no regular expression or pattern: {error}")
    if pattern and os.path.isfile(start):
        search(start)
    for folder, folders, files in os.walk(start):
        folders[:] = sorted(set(folders).difference(skipped))
        for file in sorted(files):
            path = os.path.join(folder, file)
            name = os.path.normpath(path).replace(os.sep, "/")
            below = name if pattern else os.path.relpath(path, start).replace(os.sep, "/")
            if wanted.fullmatch(below):
                search(path) if pattern else show(name)


async def _search(command: Sequence[str], folder: Path, what: str) -> str:
    """The first lines that a search prints; a search that takes long is killed."""
    lines, error = list[str](), b""
    with explained(what):
        process = Popen(command, cwd=folder, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        error = await within(SEARCH_SECONDS, in_thread(_take_lines, process, lines), grace=1.0)
    except TimeoutError:
        lines.append(f"[Stopped after {SEARCH_SECONDS:g} seconds: search less, or more simply.]")
    finally:
        process.kill()
    if error and not lines:
        raise ToolError(error.decode(errors="replace").strip())
    return "\n".join(lines) or f"There are no {what}."


def _take_lines(process: Popen[bytes], lines: list[str]) -> bytes:
    """Puts what a process prints into `lines`, until there are enough; returns its complaints."""
    with process:
        for line in process.stdout or ():
            if len(lines) == MAX_FOUND:
                lines.append(f"[There are more than these {MAX_FOUND}: be more specific.]")
                process.kill()
                return b""
            lines.append(line.decode(errors="replace").rstrip("\r\n").removeprefix("./"))
        error = process.stderr.read(1000) if process.stderr else b""
    return error if process.returncode else b""
