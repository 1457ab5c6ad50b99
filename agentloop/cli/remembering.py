"""Keeps in the log what the memory files said, so that the page can show all that the model saw.

Copy with: the core, mixins/memory.py.
"""

from ..messages import Mark, Record, RunStart, frozen
from ..mixins.memory import Memory


@frozen
class Remembered(Mark):
    """The text of the memory files, which stands in each request of a run."""

    content: str


class Remembering(Memory):
    """Shows the memory files to the model, and records their text when a run begins."""

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, RunStart):
            for message in self._memory:
                super().record(Remembered(message.text))
