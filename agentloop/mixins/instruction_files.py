"""Adds the text of files such as AGENTS.md to every request, after the system prompt.

Copy with: the core.

    class MyAgent(InstructionFiles, Agent):
        instruction_files = ("AGENTS.md", "~/notes.md")

The files are read when the agent is made, and what was read stays the same for its lifetime: a
change would break the cached prefix, and the provider would charge the full price for the whole
conversation. A fork reads the files again, and so does `read_instructions()` between runs. The text
is in every request but not in the log, so a summary neither contains nor replaces it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import PositiveInt

from ..content import clip
from ..loop import Loop
from ..messages import Message, UserMessage

CHARS_PER_TOKEN = 4  # in English text and source code
INTRO = "Keep the content of these files in mind:"


class InstructionFiles(Loop):
    """Puts the content of files at the beginning of every request.

    instruction_files: file names, in order. A missing file is left out, and if files have the same
        content, it's included once.
    instruction_dir: the folder that relative names start from.
    instruction_tokens: how long all files may be together, in tokens of four characters. If they're
        longer, a note replaces the middle.
    """

    instruction_files: Sequence[str | Path] = ("AGENTS.md",)
    instruction_dir: str | Path = "."
    instruction_tokens: PositiveInt = 8_000

    def __post_init__(self) -> None:
        self._instructions = self._read_files()  # before super(), which may open a session file
        super().__post_init__()

    @property
    def instruction_texts(self) -> list[str]:
        """The texts that are in every request."""
        return [message.text for message in self._instructions]

    def read_instructions(self) -> None:
        """Read the files again.

        Raises ValueError if a file can't be read, and AgentBusy during a run.
        """
        self.refuse_if_busy()
        self._instructions = self._read_files()

    async def context(self) -> list[Message]:
        messages = await super().context()
        after_system = 1 if self.system_text() else 0
        return [*messages[:after_system], *self._instructions, *messages[after_system:]]

    def _read_files(self) -> list[UserMessage]:
        folder = Path(self.instruction_dir)
        names = self.instruction_files
        texts = {read_text(name, folder): name for name in names}  # without duplicates
        blocks = [f"## {name}\n\n{text}" for text, name in texts.items() if text]
        if not blocks:
            return []
        shown = clip("\n\n".join([INTRO, *blocks]), self.instruction_tokens * CHARS_PER_TOKEN)
        return [UserMessage(shown, "memory")]


def read_text(name: str | Path, folder: Path) -> str:
    """Read a file: "" if there's none. A relative name starts from `folder`.

    Raises ValueError if the file can't be read, or is a link that leads out of `folder`. If the
    file isn't in `folder`, it must not be a link that leads out of its own folder.
    """
    folder = Path(os.path.abspath(folder.expanduser()))
    path = Path(os.path.abspath(folder / Path(name).expanduser()))
    home = folder if path.is_relative_to(folder) else path.parent
    try:
        if not path.resolve().is_relative_to(home.resolve()):
            raise ValueError(f"it's a link that leads out of {home}")
        return path.read_text("utf-8-sig").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} can't be read as UTF-8 text: {error}") from error
