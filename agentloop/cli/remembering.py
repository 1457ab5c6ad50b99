"""The memory files of a folder. The log keeps what they said, so that the page can show it."""

from pathlib import Path

from ..messages import Mark, Record, RunStart, frozen
from ..mixins.instruction_files import InstructionFiles


@frozen
class Remembered(Mark):
    """The text of the memory files, which stands in each request of a run."""

    content: str


class Remembering(InstructionFiles):
    """Shows the memory files to the model, and records their text when a run begins."""

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, RunStart):
            for message in self._memory:
                super().record(Remembered(message.text))


def memory_files(folder: Path, own: Path) -> list[Path]:
    """Return the AGENTS.md of the user's `own` folder, and those that are about a folder.

    These lie in it and above it, up to the root of its repository, which comes first. Where a
    folder has none, its CLAUDE.md counts.
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
