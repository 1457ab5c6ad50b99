"""Keeps long tool results in files: the model sees their beginning and end, and reads on at will.

Copy with: the core, tokens.py.

A file is named after its content: no word of the model or the provider becomes a name. Its owner
alone can read it, and `read_offloaded` only for an agent that has its name in the log. A result
that cannot be written is cut.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from tempfile import mkdtemp
from typing import Annotated, Any
from weakref import finalize

from ..depends import Depends, current_agent
from ..errors import ToolError
from ..loop import Loop
from ..messages import TextPart, ToolCall, ToolMessage
from ..results import clip
from ..tokens import BYTES_PER_TOKEN, count_tokens
from ..tools import Tool, in_thread, tool
from ..waiting import cancel_this_task, within

logger = logging.getLogger("agentloop")

MAX_READ_BACK = 20_000  # characters that one call of `read_offloaded` returns
WRITE_SECONDS = 10.0
LEFT_OVER = f".{16 * '[0-9a-f]'}.tmp"


class Folder:
    """A private directory, removed with the last agent that uses it."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="agentloop-"))
        finalize(self, shutil.rmtree, self.path, True)


class Offload(Loop):
    """Puts the text of long tool results into files, and offers the tool that reads them.

    offload_tokens: results of more tokens than this go to a file.
    offload_dir: where; None is a temporary directory, which does not outlive the agent.
    offload_folder: that temporary directory, once there is something in it.
    max_result_chars: as in `Loop`, but only what is longer than this is lost.
    """

    offload_tokens: int = 2_000
    offload_dir: str | Path | None = None
    offload_folder: Folder | None = field(default=None, init=False)
    max_result_chars = 10_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.offload_tokens) is not int or self.offload_tokens < 100:
            raise ValueError(f"offload_tokens is an int, 100 or more, not {self.offload_tokens}")
        if self.offload_dir is not None:
            self.offload_dir = Path(self.offload_dir).absolute()  # a tool may change the cwd

    def toolset(self) -> Sequence[Tool]:
        return [*super().toolset(), read_offloaded]

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        message = await super().call_tool(call)
        text = message.text
        if call.name == read_offloaded.name or count_tokens(text) <= self.offload_tokens:
            return message
        cut, extra = clip(text, self.offload_tokens * BYTES_PER_TOKEN), message.extra
        try:
            name = await within(WRITE_SECONDS, in_thread(store, self._folder(), text), grace=1.0)
            cut = preview(text, name, self.offload_tokens)
            extra = {**(extra or {}), "offloaded": name}
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                cancel_this_task()  # the tool has run: its result first, then the cancel
            logger.warning("a result of %s is cut, as it could not be kept: %s", call.name, error)
        parts = () if isinstance(message.content, str) else message.content
        others = [part for part in parts if not isinstance(part, TextPart)]
        return replace(message, content=[TextPart(cut), *others] if others else cut, extra=extra)

    def _folder(self) -> Path:
        if self.offload_dir is not None:
            return Path(self.offload_dir)
        self.offload_folder = self.offload_folder or Folder()
        return self.offload_folder.path


@tool(idempotent=True)
async def read_offloaded(
    agent: Annotated[Any, Depends(current_agent)], name: str, offset: int = 0, limit: int = 8_000
) -> str:
    """Read a tool result that was too long to be shown whole.

    Args:
        name: the name that stands at the top of the shortened result.
        offset: the first character to read.
        limit: how many characters, 20000 at most.
    """
    results = [record.extra or {} for record in agent.log if isinstance(record, ToolMessage)]
    names = [str(extra["offloaded"]) for extra in results if "offloaded" in extra]
    if name not in names:
        raise ToolError(f"There is no {name!r:.80}. There are: {', '.join(names[-5:]) or 'none'}.")
    text = await in_thread(load, agent._folder(), name)
    if text is None:
        raise ToolError(f"The text of {name} is gone or was changed: call the tool again.")
    return excerpt(text, offset, limit)


def preview(text: str, name: str, tokens: int) -> str:
    """The beginning and the end of a text, a quarter of `tokens` in all, and how to read on."""
    data, size = text.encode(), tokens * BYTES_PER_TOKEN // 16
    head, tail = (part.decode(errors="ignore") for part in (data[: 3 * size], data[-size:]))
    return (
        f'[Read on with read_offloaded(name="{name}", offset={len(head)}). This result has '
        f"{len(text):,} characters, about {count_tokens(text):,} tokens: here are its beginning "
        f"and its end.]\n{head}\n[... {len(text) - len(head + tail):,} left out ...]\n{tail}"
    )


def excerpt(text: str, offset: int, limit: int) -> str:
    """The part of a text from `offset` on, and where that is. ToolError: it is not in the text."""
    begin = max(0, offset)
    if begin >= len(text):
        raise ToolError(f"offset={offset} is behind the end: there are {len(text)} characters.")
    end = min(len(text), begin + max(1, min(limit, MAX_READ_BACK)))
    rest = f"go on with offset={end}" if end < len(text) else "this is the end"
    return f"[Characters {begin:,} to {end:,} of {len(text):,}; {rest}.]\n{text[begin:end]}"


def store(folder: Path, text: str) -> str:
    """Keep a text in a file, under the name that this returns. OSError: that failed."""
    data = text.encode()
    name, temporary = sha256(data).hexdigest()[:16], folder / f".{token_hex(8)}.tmp"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tidy(folder)
        with open(temporary, "xb", opener=_open_result) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / name)  # a link in its place is replaced, not followed
    except OSError:
        temporary.unlink(missing_ok=True)
        if load(folder, name) != text:  # which another agent may have written
            raise
    return name


@lru_cache(1_000)  # once in a process
def tidy(folder: Path) -> None:
    """Remove what writers that were killed left there, an hour ago or longer."""
    for path in folder.glob(LEFT_OVER):
        with suppress(OSError):
            if path.lstat().st_mtime < time.time() - 3600:
                path.unlink()


def load(folder: Path, name: str) -> str | None:
    """The text that was kept under a name; None if its file is gone, or no longer what it was."""
    try:
        with open(folder / Path(name).name, "rb", opener=_open_result) as file:
            data = file.read()
    except OSError:
        return None
    return data.decode() if sha256(data).hexdigest()[:16] == name else None


def _open_result(path: str, flags: int) -> int:
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # Windows has neither
    return os.open(path, flags, 0o600)
