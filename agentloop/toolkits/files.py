"""Tools for the files of one folder, and no others: read, glob, grep, write, edit.

Copy with: tools.py and its imports.

    agent = Agent(llm=..., tools=Workspace("project").tools)

The tools are methods of the workspace: `[ws.read, ws.grep]` offers two of them.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from types import MethodType
from typing import Any, ParamSpec, TypeVar, cast

from ..errors import ToolError
from ..messages import JSON
from ..tools import FunctionTool, Tool, names_of_file
from ..waiting import call_function

FileParams = ParamSpec("FileParams")
FileResult = TypeVar("FileResult")

RULE = (
    "Paths are relative to the workspace root and stay inside: 'src/main.py', not '/src/main.py'."
)
MAX_FILE = 20_000_000  # bytes of a file that may be read or changed
MAX_READ = 50_000  # characters of one `read`
MAX_LINE = 2_000  # characters of a line in a `read`
MAX_FOUND = 200  # lines of a `glob` or a `grep`
MAX_PIECE = 1_000_000  # characters of a line that `grep` searches in one piece
SEARCH_SECONDS = 20.0  # how long `glob` and `grep` may take
SKIPPED = (".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox")
"""The folders that `glob` and `grep` skip."""
# What git's directory may be called. On NTFS, that's also the name with blanks, dots or a ":stream"
# after it, and the short name.
GIT = re.compile(r"(\.git|git~\d+)[ .]*(:.*)?", re.IGNORECASE)


@dataclass
class Edit:
    """One replacement in a text."""

    old_text: str
    new_text: str
    replace_all: bool = False

    def make(self, text: str, path: str) -> tuple[str, int]:
        """Edit a text. Returns the new text, and how many places were replaced.

        path: the name of the file, for error messages.

        Raises ToolError unless the old text occurs exactly once; with `replace_all`, at least once.
        """
        if not self.old_text:
            raise ToolError("old_text is empty: use an existing line, or create a file with write.")
        line_end = "\n"
        if text.count("\r\n") * 2 > text.count("\n"):
            line_end = "\r\n"  # `read` omits the "\r", so the model writes "\n"
        old = re.sub("\r?\n", line_end, self.old_text)
        new = re.sub("\r?\n", line_end, self.new_text)
        places = text.count(old)
        size = len(text) + places * (len(new) - len(old))
        if size > MAX_FILE:
            raise ToolError(f"{path} would have {size:,} characters; the limit is {MAX_FILE:,}.")
        if not places:
            raise ToolError(
                f"{old!r:.200} is not in {path}. Read the file and copy the text exactly, "
                "white space too."
            )
        if places > 1 and not self.replace_all:
            raise ToolError(
                f"{old!r:.200} occurs {places} times in {path}: include more surrounding lines, "
                "or set replace_all."
            )
        return text.replace(old, new), places


class FileTool(FunctionTool[FileParams, FileResult]):
    """A tool of a Workspace. It has an argument `path`."""

    def file_names(self, args: JSON) -> Mapping[str, Sequence[str]]:
        workspace = cast(Workspace, cast(MethodType, self.function).__self__)
        return {"path": names_of_file(args["path"], workspace.root)}


def file_tool(
    **options: Any,
) -> Callable[[Callable[FileParams, FileResult]], FileTool[FileParams, FileResult]]:
    """Make a tool of a method of Workspace. The options are fields of `Tool`."""
    return lambda method: FileTool(method, **options)


class Workspace:
    """A folder, and the tools for its files.

    root: the folder, which must exist.
    dry_run: whether to check changes, but write nothing.

    The folder is a security boundary: a model that has only these tools can neither read nor change
    files outside of it. (It can read a hard link inside; if it writes there, a file of its own
    takes the link's place.) It can read the files in `.git`, but not change them, because git runs
    the programs that its configuration and hooks name. Tools that run programs, such as `Shell`,
    aren't confined to the folder.
    """

    def __init__(self, root: str | Path = ".", *, dry_run: bool = False) -> None:
        self.dry_run = dry_run
        self.root = Path(root).resolve()
        os.listdir(self.root)  # fails here and not later if it isn't a directory
        self.seen: dict[Path, int] = {}  # hashes of the files that the model has read

    @property
    def tools(self) -> list[Tool]:
        """All six tools."""
        return [self.read, self.glob, self.grep, self.write, self.edit, self.multi_edit]

    @file_tool(idempotent=True, read_only=True, timeout=60)
    def read(self, path: str, offset: int = 1, limit: int = 2000) -> str:
        """Read a text file. Every line is preceded by its number and a tab.

        Args:
        path: The file, relative to the workspace root.
        offset: Number of the first line to read, starting with 1.
        limit: Maximum number of lines.
        """
        with self._at(path) as target:
            data = self._load(target)
        self.seen[target] = hash(data)
        first = max(1, offset)
        shown = list[str]()
        room = MAX_READ
        for number, encoded in enumerate(BytesIO(data), 1):  # makes no list of all the lines
            if number < first:
                continue
            line = encoded.decode(errors="replace").removesuffix("\n").removesuffix("\r")
            if len(line) > MAX_LINE:
                line = f"{line[:MAX_LINE]}[... of {len(line):,}]"
            numbered = f"{number:6}\t{line}"
            room -= len(numbered) + 1
            if room < 0 or len(shown) == max(1, limit):
                shown.append(f"[More lines follow: continue with offset={number}.]")
                break
            shown.append(numbered)
        return "\n".join(shown) or f"[{path} is empty, or ends before line {first}.]"

    @file_tool(idempotent=True, read_only=True, timeout=SEARCH_SECONDS)
    async def glob(self, pattern: str, path: str = ".") -> str:
        """List the files with matching names, such as "src/**/*.py", one path per line.

        Skips .git, node_modules, .venv and similar directories unless `path` is inside.

        Args:
        pattern: *, ?, [abc], {a,b}; ** matches any number of directories. Without a /, at any
            depth.
        path: The directory to search, relative to the workspace root.
        """
        return await self._search(path, pattern)

    @file_tool(idempotent=True, read_only=True, timeout=SEARCH_SECONDS)
    async def grep(
        self, pattern: str, path: str = ".", glob: str = "", ignore_case: bool = False
    ) -> str:
        """Search text files for a regular expression. Returns a line "path:line:text" per match.

        Skips .git, node_modules, .venv and similar directories unless `path` is inside; other files
        ignored by git are searched. A search is stopped after 20 seconds: search fewer files, or
        use a simpler pattern.

        Args:
        pattern: The regular expression, matched line by line.
        path: The file or directory to search, relative to the workspace root.
        glob: Search only files with matching names, such as "*.py".
        ignore_case: Whether to ignore upper and lower case.
        """
        if ignore_case:
            pattern = f"(?i){pattern}"
        return await self._search(path, glob, pattern)

    @file_tool(parallel=False)
    async def write(self, path: str, content: str) -> str:
        """Write a complete file, creating missing directories. Use edit to change a part of a file.

        An existing file must be read first.

        Args:
        path: The file, relative to the workspace root.
        content: The complete new content.
        """
        with self._at(path, new=True) as target:
            before = self._load(target)
            data = content.encode()
            if before and self.seen.get(target) != hash(before):
                raise ToolError(
                    f"{path} exists and was not read, or has changed since: read it first."
                )
            self._change(target, before, data)
            done = "Overwrote" if before else "Created"
            return f"{done} {self._name(target)}: {len(data):,} bytes."

    @file_tool(parallel=False)
    async def edit(self, path: str, old_text: str, new_text: str, replace_all: bool = False) -> str:
        """Replace text in a file. The old text must occur exactly once.

        Args:
        path: The file, relative to the workspace root.
        old_text: The text to replace, exactly as in the file, including whitespace, without line
            numbers.
        new_text: The replacement.
        replace_all: Replace every occurrence.
        """
        return self._edit(path, [Edit(old_text, new_text, replace_all)])

    @file_tool(parallel=False)
    async def multi_edit(self, path: str, edits: list[Edit]) -> str:
        """Apply several edits to one file; if one edit fails, the file remains unchanged.

        Args:
        path: The file, relative to the workspace root.
        edits: Edits as for `edit`, applied in order to the result of the previous edit.
        """
        return self._edit(path, edits)

    def _edit(self, path: str, edits: list[Edit]) -> str:
        with self._at(path) as target:
            before = self._load(target)
            text = before.decode(errors="surrogateescape")  # so invalid bytes stay as they are
            replaced = 0
            for edit in edits:
                text, places = edit.make(text, path)
                replaced += places
            data = text.encode(errors="surrogateescape")
            self._change(target, before, data)
            return f"Edited {self._name(target)}: {replaced} replaced."

    @contextmanager
    def _at(self, path: str, *, new: bool = False) -> Generator[Path]:
        """Follow a path and its links to the file.

        Raises ToolError if the file is outside of the workspace, if it doesn't exist (unless
        `new`), and if the block raises an OSError or a ValueError.
        """
        try:
            target = Path(os.path.realpath(self.root / path))
            if "\\" in path:
                raise ToolError(f"{path!r:.200} contains a backslash: write / between folders.")
            if path[:1] == "~" or not target.is_relative_to(self.root):
                raise ToolError(f"{path!r:.200} is outside of the workspace. {RULE}")
            if not (new or target.exists()):
                raise ToolError(
                    f"{self._name(target)} does not exist. Search for it with glob. {RULE}"
                )
            yield target
        except (OSError, ValueError) as error:
            raise ToolError(f"{path!r:.200}: {error}") from error

    def _name(self, target: Path) -> str:
        """A file's path as the model should write it: relative to the workspace root."""
        return target.relative_to(self.root).as_posix()

    def _load(self, target: Path) -> bytes:
        """Read a text file; a missing one is empty.

        Raises ToolError for folders, devices, large files and binary files.
        """
        if not target.exists():
            return b""
        name = self._name(target)
        size = target.stat().st_size
        if not target.is_file():  # opening a pipe or a device may block forever
            raise ToolError(
                f"{name} is a folder, a pipe or a device, not a file: list folders with glob."
            )
        if size > MAX_FILE:
            raise ToolError(f"{name} is too large: {size:,} bytes. Search it with grep.")
        data = target.read_bytes()
        if b"\0" in data[:8192]:
            raise ToolError(f"{name} is a binary file of {size:,} bytes.")
        return data

    def _change(self, target: Path, before: bytes, data: bytes) -> None:
        """Replace the content of a file, all at once or not at all. `before` is what it was.

        Don't await between reading the file and this call, so that neither a cancellation nor
        another call on this event loop can come between.
        """
        name = self._name(target)
        if any(map(GIT.fullmatch, name.split("/"))):
            raise ToolError(f"{name} belongs to git: it can be read, but not changed.")
        if target.exists() and not target.stat().st_mode & 0o222:
            raise ToolError(f"{name} is read-only.")
        if self.dry_run:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            temporary.write_bytes(data)
            if target.exists():
                shutil.copymode(target, temporary)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        if not before or self.seen.get(target) == hash(before):
            self.seen[target] = hash(data)

    async def _search(self, path: str, glob: str, pattern: str = "") -> str:
        """Search in a process of its own, because one can kill that. Returns the first lines."""
        with self._at(path) as target:
            start = self._name(target)
            arguments = json.dumps([start, glob or "*", pattern, SKIPPED, MAX_FOUND + 1])
            command = [sys.executable, "-I", "-S", "-Xutf8", "-c", SEARCH, arguments]
            process = Popen(command, cwd=self.root, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
        try:
            output, _ = await call_function(process.communicate)
        finally:
            process.kill()
        lines = re.findall(r"[^\r\n]+", output.decode(errors="replace"))
        if len(lines) > MAX_FOUND:
            lines[-1] = f"[More than {MAX_FOUND} results: be more specific.]"
        return "\n".join(lines) or f"No match for {pattern or glob!r:.200} in {start}."


# ---- the search: these functions run in another process


def _find(start: str, glob: str, pattern: str, skipped: list[str]) -> Iterator[str]:
    """Yield the files below `start` whose names match `glob`, or their lines that match."""
    wanted = re.compile(_glob_pattern(glob), re.DOTALL)  # a folder's name may contain line ends
    regex = re.compile(pattern)
    for path in _files_below(start, skipped):
        if pattern:
            if wanted.fullmatch(path.as_posix()):
                yield from map(_on_one_line, _matching_lines(path, regex))
        elif wanted.fullmatch(path.relative_to(start).as_posix()):
            yield _on_one_line(path.as_posix())


def _on_one_line(text: str) -> str:
    """Escape line ends in a file's name or text: they'd look like another result."""
    return re.sub(r"[\n-\r\x1c-\x1e\x85\u2028\u2029]", lambda end: repr(end[0])[1:-1], text)


def _glob_pattern(glob: str) -> str:
    meanings = {
        "**/": "(?:.*/)?",
        "**": ".*",
        "*": "[^/]*",
        "?": "[^/]",
        "{": "(?:",
        "}": ")",
    }
    if "{" in glob:
        meanings[","] = "|"
    if "/" not in glob:
        glob = f"**/{glob}"
    pattern = ""
    for piece in re.findall(r"(?s)\*\*/?|\[[^]]+\]|.", glob):
        if piece in meanings:
            pattern += meanings[piece]
        elif len(piece) > 1:  # [abc]
            pattern += piece.replace("[!", "[^")
        else:
            pattern += re.escape(piece)
    return pattern


def _files_below(start: str, skipped: list[str]) -> Iterator[Path]:
    """Yield `start` if it's a file, or else the files below it. Linked folders are skipped."""
    if not os.path.isdir(start):
        yield Path(start)
    for folder, folders, files in os.walk(start):
        folders[:] = sorted(set(folders).difference(skipped))
        yield from sorted(Path(folder, file) for file in files)


def _matching_lines(path: Path, regex: re.Pattern[str]) -> Iterator[str]:
    """Yield the lines of a text file that match, as "path:line:text".

    A line is searched in pieces of MAX_PIECE characters, so a long one doesn't fill the memory.
    """
    if path.is_symlink() or not path.is_file():
        return
    number = 1
    is_listed = False  # whether an earlier piece of this line has matched
    with suppress(OSError), path.open(newline="\n", errors="replace") as file:
        while piece := file.readline(MAX_PIECE):
            if "\0" in piece:
                return  # a binary file
            text = piece.rstrip("\r\n")
            match = regex.search(text)
            if match and not is_listed:
                is_listed = True
                begin = max(0, match.start() - 100)
                yield f"{path.as_posix()}:{number}:{text[begin : begin + 300]}"
            if piece[-1] == "\n":
                number += 1
                is_listed = False


IMPORTS = (
    "from __future__ import annotations\n"
    "import itertools, json, os, re, sys\n"
    "from contextlib import suppress\n"
    "from pathlib import Path\n"
    "sys.tracebacklimit = 0\n"
    f"MAX_PIECE = {MAX_PIECE}\n"
)
MAIN = """
*arguments, most = json.loads(sys.argv[1])
print(*itertools.islice(_find(*arguments), most), sep="\\n")
"""
FUNCTIONS = (_find, _on_one_line, _glob_pattern, _files_below, _matching_lines)
SEARCH = "\n".join([IMPORTS, *(inspect.getsource(function) for function in FUNCTIONS), MAIN])
