"""The instruction files of a directory, recorded in the log for `agentloop view`."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentloop import InstructionFiles, Mark, Record, RunStart


@dataclass(frozen=True, slots=True)
class Remembered(Mark):
    """The text of the instruction files, which is part of all requests of a run."""

    content: str


class Remembering(InstructionFiles):
    """Adds the instruction files to requests, and records their text when a run starts."""

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, RunStart):
            for text in self.instruction_texts:
                super().record(Remembered(text))


def memory_files(folder: Path, own: Path, say: Callable[[str], None]) -> list[Path]:
    """Find the AGENTS.md of the user's `own` directory, of a directory, and of its parents.

    The parents go up to the root of the repository, whose file comes first. If there's no
    AGENTS.md, CLAUDE.md takes its place. Links are followed.

    say: gets a line about each file that's left out.
    """
    root = next((above for above in [folder, *folder.parents] if (above / ".git").exists()), folder)
    parents = [above for above in folder.parents if above.is_relative_to(root)]
    files = list[Path]()
    for directory in [own, *reversed(parents), folder]:
        names = [directory / "AGENTS.md", directory / "CLAUDE.md"]
        for path in [path for path in names if os.path.lexists(path)][:1]:
            try:
                if path.lstat().st_uid != folder.stat().st_uid and directory in parents:
                    raise ValueError("it belongs to another user")
                files.append(readable(path, root.resolve() if directory != own else Path("/")))
            except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links
                say(f"{path} is ignored: {error}")
    return files


def readable(path: Path, root: Path) -> Path:
    """Follow the links to a file. Raises OSError or ValueError if it can't be used.

    root: the directory that a link must not leave.
    """
    file = path.resolve(strict=True)
    if not file.is_relative_to(root):
        raise ValueError(f"it's a link out of {root}")
    if not file.is_file():  # a pipe would never end
        raise ValueError("it isn't a file")
    file.read_text("utf-8-sig")
    return file
