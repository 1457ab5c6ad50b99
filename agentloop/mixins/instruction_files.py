"""Adds the text of files such as AGENTS.md to every request, after the system prompt.

Copy with: the core.

    class MyAgent(InstructionFiles, Agent):
        instruction_files = ("AGENTS.md", "~/notes.md")

The files are read when the agent is created, and the content remains constant during the agent's
lifetime, because a change would invalidate the cached prefix: the provider would bill the complete
conversation at the full price. A fork reads the files again, as does `read_instructions()` between
runs. The content is part of all requests but not of the log, so summaries neither contain nor
replace it.
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
    """Inserts the content of files at the beginning of all requests.

    instruction_files: file names, in order. Missing files are omitted, and identical content of
        several files is included only once.
    instruction_dir: the directory for relative names.
    instruction_tokens: maximum total length in tokens of four characters. In longer content, a note
        replaces the middle.
    """

    instruction_files: Sequence[str | Path] = ("AGENTS.md",)
    instruction_dir: str | Path = "."
    instruction_tokens: PositiveInt = 8_000

    def __post_init__(self) -> None:
        self._instructions = self._read_files()  # before super(), which may open a session file
        super().__post_init__()

    @property
    def instruction_texts(self) -> list[str]:
        """Return the texts that are part of all requests."""
        return [message.text for message in self._instructions]

    def read_instructions(self) -> None:
        """Read the files again.

        Raises ValueError if a file cannot be read, and AgentBusy during a run.
        """
        self.refuse_if_busy()
        self._instructions = self._read_files()

    async def context(self) -> list[Message]:
        messages = await super().context()
        after_system = 1 if self.system_text() else 0
        return [*messages[:after_system], *self._instructions, *messages[after_system:]]

    def _read_files(self) -> list[UserMessage]:
        """Return a message with the content of the files, or an empty list without content."""
        folder = Path(self.instruction_dir)
        names = self.instruction_files
        texts = {read_text(name, folder): name for name in names}  # without duplicates
        blocks = [f"## {name}\n\n{text}" for text, name in texts.items() if text]
        if not blocks:
            return []
        shown = clip("\n\n".join([INTRO, *blocks]), self.instruction_tokens * CHARS_PER_TOKEN)
        return [UserMessage(shown, "memory")]


def read_text(name: str | Path, folder: Path) -> str:
    """Return the content of a file, or "" for a missing file. Relative names refer to `folder`.

    Raises ValueError if the file cannot be read, or is a link to a target outside of `folder`. A
    file outside of `folder` must not be a link to a target outside of the file's own directory.
    """
    folder = Path(os.path.abspath(folder.expanduser()))
    path = Path(os.path.abspath(folder / Path(name).expanduser()))
    home = folder if path.is_relative_to(folder) else path.parent
    try:
        if not path.resolve().is_relative_to(home.resolve()):
            raise ValueError(f"link to a target outside of {home}")
        return path.read_text("utf-8-sig").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read the file {path} as UTF-8 text: {error}") from error
