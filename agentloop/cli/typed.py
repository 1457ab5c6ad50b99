"""What a user types: messages of one or more lines, with a history that is kept.

Copy with: nothing else.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

HISTORY = "~/.agentloop/history"
LONGEST = 1000  # messages that are kept


class Typed:
    """Reads messages from the terminal; `history` is the file of those typed before."""

    def __init__(self, history: str | Path | None = HISTORY) -> None:
        self.history = Path(history).expanduser() if history else None
        self.readline: Any = None
        with suppress(ImportError):  # Windows has none, and its console no need of it
            self.readline = import_module("readline")  # from here on, input() has line editing
            self.readline.set_auto_history(False)  # it would keep line by line
            if "libedit" not in (self.readline.__doc__ or ""):
                self.readline.parse_and_bind("set enable-bracketed-paste on")
            self.readline.clear_history()
            for message in self._load():
                self.readline.add_history(message)

    def message(self, prompt: str = "> ", more: str = ". ") -> str:
        """The next message; a line that ends with a backslash goes on in the next.

        A pasted block is one message where readline is. Raises EOFError and KeyboardInterrupt.
        """
        lines = [input(prompt)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            try:
                lines.append(input(more))
            except EOFError:
                break
        message = "\n".join(lines).strip()
        if message and self.readline:
            self._keep(message)
        return message

    def _keep(self, message: str) -> None:
        length = self.readline.get_current_history_length()
        if length and self.readline.get_history_item(length) == message:
            return
        self.readline.add_history(message)
        if self.history is not None:
            with suppress(OSError):  # it is a convenience
                self.history.parent.mkdir(0o700, parents=True, exist_ok=True)
                _write(self.history, [message], os.O_APPEND)

    def _load(self) -> list[str]:
        """The newest messages. A file that has grown twice too long is cut to them."""
        messages: list[str] = []
        if self.history is None:
            return messages
        with suppress(OSError):
            for line in self.history.read_text(encoding="utf-8", errors="replace").split("\n"):
                with suppress(ValueError):
                    if isinstance(message := json.loads(line), str):
                        messages.append(message)
            if len(messages) > 2 * LONGEST:
                _write(self.history, messages[-LONGEST:], os.O_TRUNC)
        return messages[-LONGEST:]


def _write(path: Path, messages: list[str], flags: int) -> None:
    """Writes messages, each as a line of JSON, for the owner's eyes."""
    flags |= os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(message) + "\n" for message in messages)
