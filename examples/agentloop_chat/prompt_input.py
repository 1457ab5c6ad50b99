"""User input as a prompt: pasted text, and attached files and images."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TypeGuard

from agentloop import ImagePart, Message, Part, Record, TextPart, UserMessage
from agentloop.content import clip
from agentloop.toolkits.files import SKIPPED

NAMED = re.compile(r'(?<!\S)@("[^"]+"|\S+)')  # @path, or @"a path"
PLACEHOLDER = re.compile(r"\[paste \d+: \d+ lines\]")
LINES = re.compile(r"(.+)#L?(\d+)(?:-L?(\d+))?")  # path#20, or path#20-45
IMAGES = {  # how files of a type begin
    "image/png": rb"\x89PNG",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8",
    "image/webp": rb"(?s)RIFF....WEBP",
}
MAX_TEXT = 50_000  # characters of an attached text; the middle of a longer one is omitted
MAX_BYTES = 5_000_000  # of an attached file; providers refuse larger images
MOST_FILES = 200_000  # maximum number of files for Tab completion
LONG = 10  # maximum lines of a paste without a placeholder
MAX_PATH = 4096  # characters; to resolve a pasted log of 400 KB as a path takes 8 seconds


class Pastes(dict[str, str]):
    """Pasted texts, by the placeholders that stand for them until the prompt is sent.

    A placeholder replaces a long paste, and one that contains an @path: only a path that the user
    has typed attaches a file.
    """

    def fold(self, text: str) -> str:
        """Keep a pasted text if it needs a placeholder. Returns the placeholder, or else the text."""
        lines = text.count("\n") + 1
        if lines <= LONG and not NAMED.search(text):
            return text
        name = f"[paste {len(self) + 1}: {lines} lines]"
        self[name] = text
        return name

    def missing(self, text: str) -> set[str]:
        """The placeholders in a text that stand for nothing."""
        return {*PLACEHOLDER.findall(text)} - self.keys()

    def unfold(self, text: str) -> str:
        """Put the pasted texts in place of their placeholders."""
        if not self:
            return text
        names = "|".join(map(re.escape, self))
        # one pass, which ignores placeholders inside of pastes
        return re.sub(names, lambda match: self[match[0]], text)


async def with_files(
    prompt: str,
    typed: str,
    root: Path,
    say: Callable[[str], None],
    confirm: Callable[[str], Awaitable[bool]],
    doubtful: Collection[str] = (),
) -> str | list[Part]:
    """Attach the files and images that the user has named as @path or @path#20-45 to a prompt.

    typed: the part of the prompt that the user typed. Paths in piped or pasted text are ignored.
    root: the working directory, the base of relative paths.
    say: gets a line about every file that's attached or missing.
    confirm: gets the path of a file that's outside the working directory or in `doubtful`, and
        returns whether to attach it.
    doubtful: names of files that the user must confirm.
    """
    parts: list[Part] = [TextPart(prompt)]
    for name in NAMED.findall(typed):
        path = name.strip('"')
        file = file_at(root, path)
        if not file:  # "look at @a.py."
            path = path.rstrip(".,:;!?)")
            file = file_at(root, path)
        span = LINES.fullmatch(path)
        if not file and span:
            file = file_at(root, span[1])
        if not file:
            if "." in path:  # otherwise @ may precede a user name
                say(f"{path} was not attached: no such file.")
            continue
        is_sure = name not in doubtful and file.is_relative_to(root.resolve())
        if not is_sure and not await confirm(str(file)):
            say(f"{path} was not attached.")
            continue
        try:
            data = lines_at(file, int(span[2]), int(span[3] or span[2])) if span else bytes_of(file)
            part = part_of(data, path)
        except (OSError, ValueError) as error:
            say(f"{path} was not attached: {error}.")
            continue
        parts.append(part)
        # the note in place of the middle makes the text a little longer
        is_shortened = isinstance(part, TextPart) and len(part.text) > MAX_TEXT
        shortened = ", without its middle" if is_shortened else ""
        say(f"{path} is attached: {len(data):,} bytes{shortened}.")
    return parts if parts[1:] else prompt


def file_at(root: Path, path: str) -> Path | None:
    """The file that a path leads to, or None if there's none."""
    if len(path) > MAX_PATH:
        return None
    try:
        file = (root / Path(path).expanduser()).resolve()
        return file if file.is_file() else None
    except (OSError, RuntimeError, ValueError):  # a name that is too long; an unknown ~user
        return None


def bytes_of(file: Path) -> bytes:
    """Read a file. Raises ValueError if it's too large."""
    if file.stat().st_size > MAX_BYTES:
        raise ValueError(f"the file is larger than {MAX_BYTES:,} bytes")
    return file.read_bytes()


def lines_at(file: Path, first: int, last: int) -> bytes:
    """Read lines of a file. Raises ValueError if there are none, or if it's an image."""
    with file.open("rb") as stream:
        data = b"".join(islice(stream, max(first - 1, 0), last))
    if not data or image_type(data):
        raise ValueError("the file has no such lines")
    return data


def part_of(data: bytes, path: str) -> Part:
    """The part of a prompt for an image or a text. Raises ValueError for other data."""
    kind = image_type(data)
    if kind:
        return ImagePart(data=data, media_type=kind)
    if b"\0" in data:
        raise ValueError("the file is binary")
    return TextPart(clip(f"{path}:\n{data.decode('utf-8', 'replace')}", MAX_TEXT))


def is_prompt(record: Record | Message) -> TypeGuard[UserMessage]:
    """Whether a record is a message of the user, and not of the program."""
    return isinstance(record, UserMessage) and not record.hidden


def typed(message: UserMessage) -> str:
    """The text of a user message, without its attachments."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content[:1] if isinstance(part, TextPart))


def image_type(start: bytes) -> str | None:
    """The type of an image, which its name may not say, and which providers check."""
    return next((kind for kind, pattern in IMAGES.items() if re.match(pattern, start)), None)


def is_image(root: Path, path: str) -> bool:
    """Whether a text is the path of an image that you can write as @"path"."""
    file = file_at(root, path)
    if not file or '"' in path:
        return False
    with suppress(OSError), file.open("rb") as stream:
        return image_type(stream.read(12)) is not None
    return False


def named_files(root: Path) -> list[str]:
    """The files below a directory as @paths, nearest first, except those in SKIPPED.

    A name with a quote or a control character is left out, because @"..." can't contain it.
    """
    names = list[str]()
    for folder, folders, files in os.walk(root):
        folders[:] = set(folders).difference(SKIPPED)
        for file in [os.path.join(folder, name) for name in files]:
            path = os.path.relpath(file, root)
            if '"' not in path and path.isprintable() and os.path.isfile(file):
                names.append(f'@"{path}"' if " " in path else f"@{path}")
        if len(names) >= MOST_FILES:
            break
    return sorted(names, key=lambda name: (name.count("/"), name))
