"""Long tool results in files: the model gets an excerpt, and a tool to read the rest.

Use this mixin if tools return logs, tables or pages, and the model needs parts of them. Often
`context_budget` and the tool `recall` are enough, and need no files. Copy this file:

    class MyAgent(Offload, Agent):
        offload_tokens = 1_000                           # longer results are moved to files

The name of a file is a checksum of its content, so neither the model nor the provider chooses it;
it's in `message.extra["offloaded"]`. Only the owner may read the file. `read_offloaded` only reads
files whose names are in the agent's log. If a result can't be written, its middle is left out.
Results from `agent.answer` stay complete, because no tool returned them. If a result is pruned
later, `recall` finds the excerpt with the name of the file.
"""

from __future__ import annotations

import logging
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

from agentloop import (
    Agent,
    Depends,
    Loop,
    Part,
    ScriptedModel,
    TextPart,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
    call,
    count_tokens,
    current_agent,
    tool,
)
from agentloop.content import clip

CHARACTERS_PER_TOKEN = 4  # of a result that cannot be written
logger = logging.getLogger(__name__)


class Temporary:
    """A temporary folder, which is deleted together with the last agent that uses it."""

    def __init__(self) -> None:
        self.path = mkdtemp(prefix="agentloop-")
        finalize(self, shutil.rmtree, self.path, True)


class Offload(Loop):
    """Writes the text of long tool results to files, and offers a tool to read these files.

    offload_tokens: how many tokens a result may have before it goes to a file. The excerpt for the
        model has as many characters.
    offload_dir: the folder for the files. None is a temporary one, which is deleted with the agent:
        with a Session, choose a folder, or the files are gone after a restart.
    max_result_chars: as in `Loop`. The middle of a longer result isn't even in the file.
    """

    offload_tokens: Annotated[int, Field(ge=100)] = 2_000
    offload_dir: str | Path | None = None
    max_result_chars = 10_000_000

    @cached_property
    def _temporary(self) -> Temporary:
        """Make a temporary folder for this agent and its forks."""
        return Temporary()

    @property
    def offload_folder(self) -> Path:
        """The folder of the files."""
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
        if call.name == read_offloaded.name or call.parent_id:  # returned to a tool
            return message
        if count_tokens(text) <= self.offload_tokens:
            return message
        name = ""
        try:
            name = store(self.offload_folder, text)
            cut = preview(text, name, self.offload_tokens)
        except OSError as error:
            logger.warning(
                "a result of %s is truncated because it could not be written: %s", call.name, error
            )
            cut = clip(text, self.offload_tokens * CHARACTERS_PER_TOKEN)
        content: str | list[Part] = cut
        if not isinstance(message.content, str):  # images and files remain in the message
            content = [TextPart(cut)]
            content += [part for part in message.content if not isinstance(part, TextPart)]
        if name:
            message = replace(message, extra={**(message.extra or {}), "offloaded": name})
        return replace(message, content=content)


@tool(idempotent=True, read_only=True)
async def read_offloaded(
    agent: Annotated[Offload, Depends(current_agent)],
    name: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=20_000)] = 8_000,
) -> str:
    """Read a tool result that was too long to be shown completely.

    Args:
        name: the name at the top of the shortened result.
        offset: position of the first character to read.
        limit: maximum number of characters.
    """
    names = [file for record in agent.log if (file := file_of(record))]
    if name not in names:
        raise ToolError(f"Unknown result {name!r:.80}. Available: {names[-5:]}.")
    text = load(agent.offload_folder, name)
    if text is None:
        raise ToolError(f"The text of {name} was deleted or changed: call the tool again.")
    end = min(len(text), offset + limit)
    return f"[Characters {offset:,} to {end:,} of {len(text):,}.]\n{text[offset:end]}"


def file_of(record: object) -> str:
    """The name of the file that has the complete text of a result, or ""."""
    if not isinstance(record, ToolMessage):
        return ""
    return str((record.extra or {}).get("offloaded", ""))  # also the field of version 0.7


def preview(text: str, name: str, limit: int) -> str:
    """`limit` characters of the beginning and the end of a text, and how to read the rest."""
    return (
        f"[Start and end of a result of {len(text):,} characters. To read more, call "
        f'read_offloaded(name="{name}", offset={limit - limit // 2}).]\n{clip(text, limit)}'
    )


def store(folder: Path, text: str) -> str:
    """Write a text to a file, all at once or not at all. Returns its name, or raises OSError."""
    data = text.encode()
    name = name_for(data)
    if load(folder, name) is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / token_hex(8)
        try:
            temporary.touch(0o600, exist_ok=False)
            temporary.write_bytes(data)
            temporary.replace(folder / name)  # does not follow an existing link
        finally:
            temporary.unlink(missing_ok=True)
    return name


def load(folder: Path, name: str) -> str | None:
    """Read a file; None if it was deleted or changed."""
    try:
        data = (folder / name).read_bytes()
    except OSError:
        return None
    return data.decode() if name_for(data) == name else None


def name_for(data: bytes) -> str:
    """The first 16 hexadecimal digits of the data's SHA-256."""
    return sha256(data).hexdigest()[:16]


@tool("Read the log of a build")
def build_log(number: int) -> str:
    return "\n".join(f"step {step}: {'failed' if step == 700 else 'ok'}" for step in range(1_000))


class Builder(Offload, Agent):
    offload_tokens = 500


def read_on(messages: Sequence[Any], tools: Sequence[Tool]) -> ToolCall:
    name = file_of(messages[-1])
    return call("read_offloaded", name=name, offset=9_000, limit=1_000)


if __name__ == "__main__":
    llm = ScriptedModel(call("build_log", number=5), read_on, "Step 700 failed.")
    builder = Builder(llm=llm, tools=[build_log])
    print(builder.run_sync("Why did build 5 fail?").text)
    excerpt, rest = [message.text for message in builder.messages if "step" in message.text]
    print(len(excerpt), excerpt[:130], rest[:40], "failed" in rest, sep="\n")
