"""Keeps long tool results in files: the model sees their beginning and end, and reads on at will.

Copy with: the core, common/tokens.py.

A file is named after its content: no word of the model or the provider becomes a name. Only its
owner can read it. `read_offloaded` reads it only for an agent that has its name in the log. If a
result cannot be written, it is cut. What `agent.answer` gives is no result of a tool here: it stays
whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from tempfile import mkdtemp
from typing import Annotated, Any, Self
from weakref import finalize

from pydantic import Field

from ..common.tokens import BYTES_PER_TOKEN, count_tokens
from ..content import clip
from ..depends import Depends, current_agent
from ..errors import ToolError
from ..loop import Loop
from ..messages import Content, TextPart, ToolCall, ToolMessage
from ..tools import Tool, tool
from ..waiting import logger


class Temporary:
    """A directory that is deleted with the last agent that uses it."""

    def __init__(self) -> None:
        self.path = mkdtemp(prefix="agentloop-")
        finalize(self, shutil.rmtree, self.path, True)


class Offload(Loop):
    """Puts the text of long tool results into files, and offers the tool that reads them.

    offload_tokens: results of more tokens than this go to a file; the model sees so many characters
        of them.
    offload_dir: the folder of the files; None is a temporary one, which goes with the agent.
    max_result_chars: as in `Loop`: what a longer result loses is in no file either.
    """

    offload_tokens: Annotated[int, Field(ge=100)] = 2_000
    offload_dir: str | Path | None = None
    max_result_chars = 10_000_000

    @cached_property
    def _temporary(self) -> Temporary:
        """Make a directory for this agent and its forks."""
        return Temporary()

    @property
    def offload_folder(self) -> Path:
        """Return the folder of the files."""
        return Path(self.offload_dir or self._temporary.path).expanduser()

    def fork(self, at: int | None = None, **settings: Any) -> Self:
        twin = super().fork(at, **settings)
        if not self.offload_dir:
            twin._temporary = self._temporary
        return twin

    def toolset(self) -> Sequence[Tool]:
        return [*super().toolset(), read_offloaded]

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        message = await super().call_tool(call)
        text = message.text
        if call.name == read_offloaded.name or count_tokens(text) <= self.offload_tokens:
            return message
        name = ""
        try:
            name = store(self.offload_folder, text)
            cut = preview(text, name, self.offload_tokens)
        except OSError as error:
            logger.warning("a result of %s is cut, as it could not be kept: %s", call.name, error)
            cut = clip(text, self.offload_tokens * BYTES_PER_TOKEN)
        content: Content = cut
        if not isinstance(message.content, str):  # images and files stay
            content = [TextPart(cut)]
            content += [part for part in message.content if not isinstance(part, TextPart)]
        return replace(message, content=content, offloaded=name)


@tool(idempotent=True, read_only=True)
async def read_offloaded(
    agent: Annotated[Offload, Depends(current_agent)],
    name: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=20_000)] = 8_000,
) -> str:
    """Read a tool result that was too long to be shown whole.

    Args:
        name: the name that stands at the top of the shortened result.
        offset: the first character to read.
        limit: how many characters.
    """
    results = [record for record in agent.log if isinstance(record, ToolMessage)]
    names = [result.offloaded for result in results if result.offloaded]
    if name not in names:
        raise ToolError(f"There is no {name!r:.80}. There are: {names[-5:]}.")
    text = load(agent.offload_folder, name)
    if text is None:
        raise ToolError(f"The text of {name} is gone or was changed: call the tool again.")
    end = min(len(text), offset + limit)
    return f"[Characters {offset:,} to {end:,} of {len(text):,}.]\n{text[offset:end]}"


def preview(text: str, name: str, limit: int) -> str:
    """Return `limit` characters from a text's beginning and end, with a note how to read on."""
    return (
        f'[Read on with read_offloaded(name="{name}", offset={limit - limit // 2}). This result '
        f"has {len(text):,} characters: here are its beginning and its end.]\n{clip(text, limit)}"
    )


def store(folder: Path, text: str) -> str:
    """Keep a text in a file, whole or not at all, and return the file's name. Raises OSError."""
    data = text.encode()
    name = name_for(data)
    if load(folder, name) is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / token_hex(8)
        try:
            temporary.touch(0o600, exist_ok=False)
            temporary.write_bytes(data)
            temporary.replace(folder / name)  # a link in its place is not followed
        finally:
            temporary.unlink(missing_ok=True)
    return name


def load(folder: Path, name: str) -> str | None:
    """Return the text that was kept under a name; None if its file is gone or was changed."""
    try:
        data = (folder / name).read_bytes()
    except OSError:
        return None
    return data.decode() if name_for(data) == name else None


def name_for(data: bytes) -> str:
    """Return the first 16 digits of the data's SHA-256."""
    return sha256(data).hexdigest()[:16]
