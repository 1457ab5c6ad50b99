"""User input as a prompt: pasted text, and attached files and images."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from mimetypes import guess_type
from pathlib import Path
from typing import TypeGuard

from agentloop import ImagePart, Message, Part, Record, TextPart, UserMessage
from agentloop.toolkits.files import SKIPPED

NAMED = re.compile(r'(?<!\S)@("[^"]+"|\S+)')  # @path, or @"a path"
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_TEXT = 50_000  # characters of an attached file
MOST_FILES = 10_000  # maximum number of files for Tab completion
LONG = 10  # lines of a paste that the prompt shows in full


class Pastes(dict[str, str]):
    """Pastes by the placeholders that the prompt shows until it is sent.

    A placeholder replaces a long paste, and a paste with an @path: only paths that the user typed
    attach files.
    """

    def fold(self, text: str) -> str:
        """Return the text, or a placeholder for it."""
        lines = text.count("\n") + 1
        if lines <= LONG and not NAMED.search(text):
            return text
        name = f"[paste {len(self) + 1}: {lines} lines]"
        self[name] = text
        return name

    def unfold(self, text: str) -> str:
        """Replace the placeholders by the pastes."""
        if not self:
            return text
        names = "|".join(map(re.escape, self))
        return re.sub(names, lambda match: self[match[0]], text)  # one pass: not inside a paste


async def with_files(
    prompt: str,
    typed: str,
    root: Path,
    say: Callable[[str], None],
    confirm: Callable[[str], Awaitable[bool]],
) -> str | list[Part]:
    """Return the prompt with the files and images that the user named as @path.

    typed: the part of the prompt that the user typed. A pipe or a paste attaches nothing.
    root: the working folder, the base of relative paths.
    say: receives a line about each attached or missing file.
    confirm: receives the path of a file outside the working folder, and returns whether to attach
        it.
    """
    parts: list[Part] = [TextPart(prompt)]
    for name in NAMED.findall(typed):
        path = name.strip('"')
        file = root / Path(path).expanduser()
        if not file.is_file():  # "look at @a.py."
            path = path.rstrip(".,:;!?)")
            file = root / Path(path).expanduser()
        is_outside = not file.resolve().is_relative_to(root.resolve())
        if file.is_file() and is_outside and not await confirm(str(file.resolve())):
            say(f"{path} was not attached.")
        elif image := image_at(file):
            parts.append(image)
            say(f"{path} is attached.")
        elif file.is_file():
            text = file.read_text("utf-8", "replace")
            if "\0" in text:
                say(f"{path} was not attached: it is a binary file.")
                continue
            parts.append(TextPart(f"{path}:\n{shortened(text)}"))
            say(f"{path} is attached: {len(text):,} characters.")
        elif "." in path:  # otherwise @ may start a user name
            say(f"{path} was not attached: no such file.")
    return parts if parts[1:] else prompt


def shortened(text: str) -> str:
    """Return the start and the end of a text that is longer than MAX_TEXT."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n[{len(text) - MAX_TEXT:,} characters omitted]\n{text[-half:]}"


def is_prompt(record: Record | Message) -> TypeGuard[UserMessage]:
    """Return whether a record is a message of the user, not a hidden message of the program."""
    return isinstance(record, UserMessage) and not record.hidden


def typed(message: UserMessage) -> str:
    """Return the text of a user message without its attached files."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content[:1] if isinstance(part, TextPart))


def image_at(path: Path) -> Part | None:
    """Return the image in a file, or None for other files."""
    kind = guess_type(path.name)[0]
    if kind in IMAGE_TYPES and path.is_file():
        return ImagePart(data=path.read_bytes(), media_type=kind)
    return None


def named_files(root: Path) -> list[str]:
    """List the files below a folder as @paths, without the folders in SKIPPED."""
    names = list[str]()
    for folder, folders, files in os.walk(root):
        folders[:] = set(folders).difference(SKIPPED)
        for file in files:
            path = str(Path(folder, file).relative_to(root))
            names.append(f'@"{path}"' if " " in path else f"@{path}")
        if len(names) > MOST_FILES:
            break
    return names
