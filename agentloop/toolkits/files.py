"""Tools for the files of one folder, out of which no path leads: read, glob, grep, write, edit.

Copy with: tools.py and what it names.

    agent = Agent(llm=..., tools=Workspace("project").tools)

The tools are methods, so `[ws.read, ws.grep]` offers some of them.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen

from ..errors import ToolError
from ..tools import Tool, tool
from ..waiting import call_function

RULE = "Paths are relative to the workspace root and stay in it: 'src/main.py', not '/src/main.py'."
MAX_FILE = 20_000_000  # bytes of a file that these tools read or change
MAX_READ = 50_000  # characters that one `read` returns
MAX_LINE = 2_000  # characters of one line that it shows
MAX_FOUND = 200  # lines that `glob` and `grep` return
MAX_PIECE = 1_000_000  # characters of a line that `grep` searches at a time
SEARCH_SECONDS = 20.0  # how long `glob` and `grep` may take
SKIPPED = (".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox")
# The name of git's folder, and its names on NTFS: with blanks, dots or a ":stream" at its end,
# or the short name.
GIT = re.compile(r"(\.git|git~\d+)[ .]*(:.*)?", re.IGNORECASE)


@dataclass
class Edit:
    """One replacement in a text."""

    old_text: str
    new_text: str
    replace_all: bool = False

    def make(self, text: str, path: str) -> tuple[str, int]:
        """Return the text with the replacement made, and in how many places. `path` is for errors.

        Raises ToolError unless the old text is there: once, or also more often with `replace_all`.
        """
        if not self.old_text:
            raise ToolError(
                "old_text is empty: take a line that is there, or make a file with write."
            )
        line_end = "\n"
        if text.count("\r\n") * 2 > text.count("\n"):
            line_end = "\r\n"  # `read` shows none: the model writes "\n"
        old = re.sub("\r?\n", line_end, self.old_text)
        new = re.sub("\r?\n", line_end, self.new_text)
        places = text.count(old)
        size = len(text) + places * (len(new) - len(old))
        if size > MAX_FILE:
            raise ToolError(f"{path} would have {size:,} characters; the limit is {MAX_FILE:,}.")
        if not places:
            raise ToolError(
                f"{old!r:.200} is not in {path} as it is. Read the file and copy what is there, "
                "white space too."
            )
        if places > 1 and not self.replace_all:
            raise ToolError(
                f"{old!r:.200} is in {path} {places} times: take in more of the lines around it, "
                "or set replace_all."
            )
        return text.replace(old, new), places


class Workspace:
    """A folder, and the tools that work in it.

    root: the folder. It has to exist.

    The folder is a boundary: a model that can only call these tools reads and changes nothing
    outside of it. (A hard link into it can be read; a write gives the name a file of its own.) It
    reads what is in `.git` and changes nothing there: git runs the programs that its configuration
    and its hooks name. A tool that runs programs is not held back by any of this: `Shell` is no
    boundary.
    """

    def __init__(self, root: str | Path = ".", *, dry_run: bool = False) -> None:
        self.dry_run = dry_run
        self.root = Path(root).resolve()
        os.listdir(self.root)  # raises now if it is no folder
        self.seen: dict[Path, int] = {}  # the hash of each file that the model has read

    @property
    def tools(self) -> list[Tool]:
        """Return all tools of this folder."""
        return [self.read, self.glob, self.grep, self.write, self.edit, self.multi_edit]

    @tool(idempotent=True, read_only=True, timeout=60)
    def read(self, path: str, offset: int = 1, limit: int = 2000) -> str:
        """Read a text file. Each line comes with its number and a tab in front.

        Args:
            path: The file, relative to the workspace root.
            offset: The number of the first line to read; the file begins with line 1.
            limit: How many lines to read at most.
        """
        with self._at(path) as target:
            data = self._load(target)
        self.seen[target] = hash(data)
        first = max(1, offset)
        shown = list[str]()
        room = MAX_READ
        for number, encoded in enumerate(BytesIO(data), 1):  # without a list of all lines
            if number < first:
                continue
            line = encoded.decode(errors="replace").removesuffix("\n").removesuffix("\r")
            if len(line) > MAX_LINE:
                line = f"{line[:MAX_LINE]}[... of {len(line):,}]"
            numbered = f"{number:6}\t{line}"
            room -= len(numbered) + 1
            if room < 0 or len(shown) == max(1, limit):
                shown.append(f"[More follows: read on with offset={number}.]")
                break
            shown.append(numbered)
        return "\n".join(shown) or f"[{path} is empty, or has no line {first}.]"

    @tool(idempotent=True, read_only=True, timeout=SEARCH_SECONDS)
    async def glob(self, pattern: str, path: str = ".") -> str:
        """List files by name, one path a line, such as those that match "src/**/*.py".

        Skips .git, node_modules, .venv and the like, unless `path` is in them.

        Args:
            pattern: *, ?, [abc], {a,b}; ** is any number of folders. Without a /, at any depth.
            path: The folder to look in, relative to the workspace root.
        """
        return await self._search(path, pattern)

    @tool(idempotent=True, read_only=True, timeout=SEARCH_SECONDS)
    async def grep(
        self, pattern: str, path: str = ".", glob: str = "", ignore_case: bool = False
    ) -> str:
        """Search text files for a regular expression: a line of "path:line:text" for each match.

        Skips .git, node_modules, .venv and the like, unless `path` is in them; other files that git
        ignores are searched. A search that takes 20 seconds is stopped: then search less, or more
        simply.

        Args:
            pattern: The regular expression. It is matched line by line.
            path: The file or folder to search, relative to the workspace root.
            glob: Search only files with names like this, such as "*.py".
            ignore_case: Whether upper and lower case are the same.
        """
        if ignore_case:
            pattern = f"(?i){pattern}"
        return await self._search(path, glob, pattern)

    @tool(parallel=False)
    async def write(self, path: str, content: str) -> str:
        """Write a whole file, and make its folders. To change a part of one, use edit.

        A file that is there already has to be read first.

        Args:
            path: The file, relative to the workspace root.
            content: Its whole new text.
        """
        with self._at(path, new=True) as target:
            before = self._load(target)
            data = content.encode()
            if before and self.seen.get(target) != hash(before):
                raise ToolError(f"{path} exists, and is not as you last read it: read it first.")
            self._change(target, before, data)
            done = "Overwrote" if before else "Created"
            return f"{done} {self._name(target)}: {len(data):,} bytes."

    @tool(parallel=False)
    async def edit(self, path: str, old_text: str, new_text: str, replace_all: bool = False) -> str:
        """Replace text in a file. The old text has to be there exactly once.

        Args:
            path: The file, relative to the workspace root.
            old_text: What to replace, exactly as in the file: white space too, no line numbers.
            new_text: What to put in its place.
            replace_all: Replace it wherever it is.
        """
        return self._edit(path, [Edit(old_text, new_text, replace_all)])

    @tool(parallel=False)
    async def multi_edit(self, path: str, edits: list[Edit]) -> str:
        """Make several edits in one file: all of them, or none if one fails.

        Args:
            path: The file, relative to the workspace root.
            edits: As for `edit`. They are made in this order, each in the text that the last left.
        """
        return self._edit(path, edits)

    def _edit(self, path: str, edits: list[Edit]) -> str:
        """Make edits in a file, all of them or none."""
        with self._at(path) as target:
            before = self._load(target)
            text = before.decode(errors="surrogateescape")  # other bytes stay what they are
            replaced = 0
            for each in edits:
                text, places = each.make(text, path)
                replaced += places
            data = text.encode(errors="surrogateescape")
            self._change(target, before, data)
            return f"Edited {self._name(target)}: {replaced} replaced."

    @contextmanager
    def _at(self, path: str, *, new: bool = False) -> Generator[Path]:
        """Follow a path and its links. Give the place to which they lead to the `with` block.

        Raises ToolError if that is outside of the folder, if nothing is there (unless it may be
        `new`), and if the system raises an error in the block.
        """
        try:
            target = Path(os.path.realpath(self.root / path))
            if path[:1] == "~" or "\\" in path or not target.is_relative_to(self.root):
                raise ToolError(f"{path!r:.200} leads out of the workspace. {RULE}")
            if not (new or target.exists()):
                raise ToolError(f"There is no {self._name(target)}. Look for it with glob. {RULE}")
            yield target
        except (OSError, ValueError) as error:
            raise ToolError(f"{path!r:.200}: {error}") from error

    def _name(self, target: Path) -> str:
        """Return a file's path as the model should write it."""
        return target.relative_to(self.root).as_posix()

    def _load(self, target: Path) -> bytes:
        """Return the bytes of a text file, or none if nothing is there.

        Raises ToolError if it is something else.
        """
        if not target.exists():
            return b""
        name = self._name(target)
        size = target.stat().st_size
        if not target.is_file():  # opening a pipe or a device may wait for ever
            raise ToolError(
                f"{name} is no file but a folder, a pipe or a device: list folders with glob."
            )
        if size > MAX_FILE:
            raise ToolError(f"{name} is too large: {size:,} bytes. Search it with grep.")
        data = target.read_bytes()
        if b"\0" in data[:8192]:
            raise ToolError(f"{name} is a binary file of {size:,} bytes.")
        return data

    def _change(self, target: Path, before: bytes, data: bytes) -> None:
        """Replace a file, which holds `before`, as a whole.

        Nothing is awaited between the reading and this: no cancel and no other call of this event
        loop comes between.
        """
        name = self._name(target)
        if any(map(GIT.fullmatch, name.split("/"))):
            raise ToolError(f"{name} is git's own: it can be read, and not changed.")
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
        """Return the first lines that a search finds. It runs in a process that can be killed."""
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
            lines[-1] = f"[There are more than these {MAX_FOUND}: be more specific.]"
        return "\n".join(lines) or f"There is nothing like {pattern or glob!r:.200} in {start}."


# ---- the search: these functions run in a process of their own


def _find(start: str, glob: str, pattern: str, skipped: list[str]) -> Iterator[str]:
    """List the files below `start` that match `glob`, or their lines that match `pattern`."""
    wanted = re.compile(_glob_pattern(glob))
    regex = re.compile(pattern)
    for path in _files_below(start, skipped):
        if pattern:
            if wanted.fullmatch(path.as_posix()):
                yield from _matching_lines(path, regex)
        elif wanted.fullmatch(path.relative_to(start).as_posix()):
            yield path.as_posix()


def _glob_pattern(glob: str) -> str:
    """Build the regular expression for a glob."""
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
    """List `start`, if it is a file, or the files below it. Follows no link to a folder."""
    if not os.path.isdir(start):
        yield Path(start)
    for folder, folders, files in os.walk(start):
        folders[:] = sorted(set(folders).difference(skipped))
        yield from sorted(Path(folder, file) for file in files)


def _matching_lines(path: Path, regex: re.Pattern[str]) -> Iterator[str]:
    """List the lines of a text file that match, as "path:line:text".

    A line is searched in pieces of MAX_PIECE characters, so that a huge line fits in memory.
    """
    if path.is_symlink() or not path.is_file():
        return
    number = 1
    is_listed = False  # this line, because of an earlier piece
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
FUNCTIONS = (_find, _glob_pattern, _files_below, _matching_lines)
SEARCH = "\n".join([IMPORTS, *(inspect.getsource(function) for function in FUNCTIONS), MAIN])
