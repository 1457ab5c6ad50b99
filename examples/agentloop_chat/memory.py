"""The instruction files of a directory, recorded in the log for `agentloop view`."""

from dataclasses import dataclass
from pathlib import Path

from agentloop import InstructionFiles, Mark, Record, RunStart


@dataclass(frozen=True, slots=True)
class Remembered(Mark):
    """The text of the instruction files, which is part of all requests of a run."""

    content: str


class Remembering(InstructionFiles):
    """Adds the instruction files to requests, and records their text at the start of a run."""

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, RunStart):
            for text in self.instruction_texts:
                super().record(Remembered(text))


def memory_files(folder: Path, own: Path) -> list[Path]:
    """Return the AGENTS.md of the user's `own` directory, of a directory, and of its parents.

    The parents extend to the root of the repository, whose file precedes the files of
    subdirectories. CLAUDE.md replaces a missing AGENTS.md.
    """
    folders = list[Path]()
    for above in [folder, *folder.parents]:
        folders.insert(0, above)
        if (above / ".git").exists():
            break
    else:
        folders = [folder]
    files = list[Path]()
    for directory in [own, *folders]:
        names = [directory / "AGENTS.md", directory / "CLAUDE.md"]
        files += [path for path in names if path.is_file()][:1]
    return files
