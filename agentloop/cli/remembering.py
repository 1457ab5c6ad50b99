"""The memory files of a directory, and a record of their text for `agentloop view`."""

from pathlib import Path

from ..messages import Mark, Record, RunStart, frozen
from ..mixins.instruction_files import InstructionFiles


@frozen
class Remembered(Mark):
    """The text of the memory files, which is part of every request of a run."""

    content: str


class Remembering(InstructionFiles):
    """Adds memory files to requests, and records their text at the start of a run."""

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, RunStart):
            for message in self._memory:
                super().record(Remembered(message.text))


def memory_files(folder: Path, own: Path) -> list[Path]:
    """Return the AGENTS.md files of the user's `own` directory and of the given directory.

    The files of the given directory include its parents up to the root of the repository, which
    comes first. In a directory without AGENTS.md, CLAUDE.md is used.
    """
    folders = list[Path]()
    for above in [folder, *folder.parents]:
        folders.insert(0, above)
        if (above / ".git").exists():
            break
    else:
        folders = [folder]
    found = list[Path]()
    for each in [own, *folders]:
        names = [each / "AGENTS.md", each / "CLAUDE.md"]
        found += [path for path in names if path.is_file()][:1]
    return found
