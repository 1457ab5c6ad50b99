"""Shows the model what stands in files such as AGENTS.md, right after the system prompt.

Copy with: the core, common/tokens.py.

The files are read when the agent is made, and the same text is shown for its whole life: a change
would make the provider read the whole conversation at the full price again. A fork reads them anew,
and so does `read_memory()`, between runs. The text is part of every request and not of the
log, so a summary never contains or replaces it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import PositiveInt

from ..common.tokens import BYTES_PER_TOKEN
from ..content import clip
from ..loop import Loop
from ..messages import Message, UserMessage

MEMORY_INTRO = "Keep in mind what these files say:"


class InstructionFiles(Loop):
    """Puts the text of some files in front of every conversation.

    memory: the files, in this order. Those that do not exist are left out, and a text that stands
        in two of them is shown once.
    memory_dir: the directory that relative names start from.
    memory_tokens: how much of them is shown, all together, at four characters a token. A longer
        text loses its middle, and a note says so.
    """

    memory: Sequence[str | Path] = ("AGENTS.md",)
    memory_dir: str | Path = "."
    memory_tokens: PositiveInt = 8_000

    def __post_init__(self) -> None:
        self._memory = self._read_files()  # before super(), which may open a session
        super().__post_init__()

    def read_memory(self) -> None:
        """Read the files again.

        Raises ValueError if one cannot be read, and AgentBusy if a run is going on.
        """
        self.refuse_if_busy()
        self._memory = self._read_files()

    async def context(self) -> list[Message]:
        messages = await super().context()
        after_system = 1 if self.system_text() else 0
        return [*messages[:after_system], *self._memory, *messages[after_system:]]

    def _read_files(self) -> list[UserMessage]:
        """Return the message that shows the files; no message if there is nothing to show."""
        folder = Path(self.memory_dir)
        texts = {read_text(name, folder): name for name in self.memory}  # each text once
        blocks = [f"## {name}\n\n{text}" for text, name in texts.items() if text]
        if not blocks:
            return []
        shown = clip("\n\n".join([MEMORY_INTRO, *blocks]), self.memory_tokens * BYTES_PER_TOKEN)
        return [UserMessage(shown, "memory")]


def read_text(name: str | Path, folder: Path) -> str:
    """Return the text of a file, or "" if there is no file. A relative name starts from `folder`.

    Raises ValueError if it cannot be read, or if it is a link that leads out of `folder`. A file
    that is not in `folder` may not be a link that leads out of its own folder.
    """
    folder = Path(os.path.abspath(folder.expanduser()))
    path = Path(os.path.abspath(folder / Path(name).expanduser()))
    home = folder if path.is_relative_to(folder) else path.parent
    try:
        if not path.resolve().is_relative_to(home.resolve()):
            raise ValueError(f"it is a link out of {home}")
        return path.read_text("utf-8-sig").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise ValueError(f"the memory file {path} cannot be read as UTF-8 text: {error}") from error
