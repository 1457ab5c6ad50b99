"""What a user types, as a prompt: long pastes, and the files and images that it names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from mimetypes import guess_type
from pathlib import Path

from ..content import clip
from ..messages import IMAGE_TYPES, ImagePart, Part, TextPart, UserMessage, text_of
from ..toolkits.files import SKIPPED

NAMED = re.compile(r'(?<!\S)@("[^"]+"|\S+)')  # @path, or @"a path"
MAX_TEXT = 50_000  # characters of a file that go along
MOST_FILES = 10_000  # how many files Tab looks at
LONG = 10  # lines of a paste that is shown whole in the prompt


class Pastes(dict[str, str]):
    """The long pastes, by the names that the prompt shows in their place until it is sent."""

    def fold(self, text: str) -> str:
        """Return the text, or a name for it if it is long."""
        lines = text.count("\n") + 1
        if lines <= LONG:
            return text
        name = f"[paste {len(self) + 1}: {lines} lines]"
        self[name] = text
        return name

    def unfold(self, text: str) -> str:
        """Put the pastes where their names stand."""
        for name, whole in self.items():
            text = text.replace(name, whole)
        return text


def with_files(prompt: str, root: Path, say: Callable[[str], None]) -> str | list[Part]:
    """Return the prompt with the files and images that it names as @path, and say which these are.

    root: the folder that paths start from.
    """
    parts: list[Part] = [TextPart(prompt)]
    for found in NAMED.findall(prompt):
        path = found.strip('"')
        file = root / Path(path).expanduser()
        if not file.is_file():  # "look at @a.py."
            path = path.rstrip(".,:;!?)")
            file = root / path
        if image := image_at(file):
            parts.append(image)
            say(f"{path} goes along.")
        elif file.is_file():
            text = file.read_text("utf-8", "replace")
            if "\0" in text:
                say(f"{path} is no text.")
                continue
            parts.append(TextPart(f"{path}:\n{clip(text, MAX_TEXT)}"))
            say(f"{path} goes along: {len(text):,} characters.")
        elif "." in path:  # else @ may begin a name
            say(f"There is no file {path}.")
    return parts if parts[1:] else prompt


def typed(message: UserMessage) -> str:
    """Return what was typed, without the files that went along."""
    if isinstance(message.content, str):
        return message.content
    return text_of(message.content[:1])


def image_at(path: Path) -> Part | None:
    """Return the image in a file, or None if it is no image."""
    kind = guess_type(path.name)[0]
    if kind in IMAGE_TYPES and path.is_file():
        return ImagePart(data=path.read_bytes(), media_type=kind)
    return None


def named_files(root: Path) -> list[str]:
    """List the files below a folder as one names them in a prompt, but none of SKIPPED folders."""
    names = list[str]()
    for folder, folders, files in os.walk(root):
        folders[:] = set(folders).difference(SKIPPED)
        for file in files:
            path = str(Path(folder, file).relative_to(root))
            names.append(f'@"{path}"' if " " in path else f"@{path}")
        if len(names) > MOST_FILES:
            break
    return names
