"""Shows the model what stands in files such as AGENTS.md, right after the system prompt.

Copy with: the core, tokens.py.

The files are read when the agent is made, and the same text is shown for its whole life and that of
its forks: a change would make the provider read the whole conversation at the full price again.
`read_memory()` reads them afresh, between runs. The text is part of every request and not of the
log, so a summary never contains or replaces it.
"""

from __future__ import annotations

import logging
import stat
from codecs import utf_8_decode
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from ..loop import Loop
from ..messages import Message, SystemMessage, UserMessage
from ..tokens import BYTES_PER_TOKEN

logger = logging.getLogger("agentloop")

MEMORY_INTRO = "Keep in mind what these files say:"


class MemoryFile(NamedTuple):
    """A file as far as it was read: its name, the beginning of its text, its size in bytes."""

    name: str
    text: str
    size: int


class Memory(Loop):
    """Puts the text of some files in front of every conversation.

    memory: the files, in this order. Those that do not exist are left out.
    memory_dir: the directory that relative names start from.
    memory_tokens: how much of them is shown, all together; longer files lose their end.
    memory_message: what they come to; None without any text.
    """

    memory: Sequence[str | Path] = ("AGENTS.md",)
    memory_dir: str | Path = "."
    memory_tokens: int = 8_000
    memory_message: UserMessage | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.memory, str | Path):
            raise TypeError(f"memory= takes a list of files, such as [{str(self.memory)!r}]")
        if type(self.memory_tokens) is not int or self.memory_tokens < 1:
            raise ValueError(f"memory_tokens is a whole number above 0, not {self.memory_tokens}")
        self.read_memory()  # before super(), which may open a session: this may fail
        super().__post_init__()

    def read_memory(self) -> None:
        """Read the files again. ValueError: one cannot be read. AgentBusy: a run is going on."""
        self._refuse_if_busy()
        found = [read_file(name, Path(self.memory_dir), self.memory_tokens) for name in self.memory]
        text = memory_text([file for file in found if file is not None], self.memory_tokens)
        pinned = {"pinned": True}
        self.memory_message = UserMessage(text, hidden=True, extra=pinned) if text else None

    async def context(self) -> list[Message]:
        messages = await super().context()
        if self.memory_message is None:
            return messages
        at = sum(isinstance(message, SystemMessage) for message in messages[:1])
        return [*messages[:at], self.memory_message, *messages[at:]]


def read_file(name: str | Path, directory: Path, tokens: int) -> MemoryFile | None:
    """As much of a file as can be shown; None if there is none. ValueError: it is not readable."""
    path = directory / Path(name).expanduser()
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is a directory, a pipe or a device")
        with path.open("rb") as stream:
            data = stream.read(tokens * BYTES_PER_TOKEN)
        whole = len(data) >= status.st_size
        text = utf_8_decode(data, "strict", whole)[0].removeprefix("\ufeff").strip()
    except (FileNotFoundError, NotADirectoryError):
        logger.info("there is no memory file %s", path)
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"the memory file {path} cannot be read as UTF-8 text: {error}") from error
    shown = path.relative_to(directory) if path.is_relative_to(directory) else Path(name)
    return MemoryFile(shown.as_posix(), text, len(text.encode()) if whole else status.st_size)


def memory_text(files: Sequence[MemoryFile], tokens: int) -> str:
    """The files under their names, no text twice; of their text, `tokens` tokens at most."""
    texts = {file.text: file for file in reversed(files) if file.text}  # the first of its name
    kept = [file for file in files if texts.get(file.text) is file]
    room = shares([file.size for file in kept], tokens * BYTES_PER_TOKEN)
    blocks = [block(file, limit) for file, limit in zip(kept, room, strict=True)]
    return "\n\n".join([MEMORY_INTRO, *blocks]) if blocks else ""


def block(file: MemoryFile, limit: int) -> str:
    """A file's name and the first `limit` bytes of its text."""
    text, note = file.text, ""
    if limit < file.size:
        text = text.encode()[:limit].decode(errors="ignore").rstrip()
        note = f"\n[{file.name} goes on: it has {file.size:,} bytes, and its end is not shown.]"
    return f"## {file.name}\n\n{text}{note}"


def shares(sizes: Sequence[int], total: int) -> list[int]:
    """`total` split among these sizes: the small ones are met, and the large ones get the same."""
    room = dict[int, int]()
    for done, at in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        room[at] = min(sizes[at], total // (len(sizes) - done))
        total -= room[at]
    return [room[at] for at in range(len(sizes))]
