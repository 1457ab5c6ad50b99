"""`agentloop`: the commands and their options. If you name none, it starts the chat.

The chat is a program of its own, `agentloop_chat`, which is loaded if it's installed.

A command is a module with a function `main`, its `HELP` in one line, and `add_options`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import Protocol, cast

from .. import SessionLocked, __version__
from .terminal import RED, Terminal

CHAT = "agentloop_chat.program"  # also defines EPILOG, the end of the help text
COMMANDS = {
    "demo": "agentloop.cli.demo",
    "bundle": "agentloop.cli.bundle",
    "replay": "agentloop.cli.replay",
    "view": "agentloop.cli.view",
}
NO_CHAT = (
    "The package agentloop_chat isn't installed: run pip install -e '.[chat]' in a checkout of "
    "agentloop. (It contains the chat, which the demo uses; bundle, replay and view don't need it.)"
)
MISTYPED = 0.85  # how similar a word must be to a command to count as mistyped
AS_PROMPT = "If it's the beginning of a prompt, use agentloop -p '...'."


class Command(Protocol):
    """What the module of a command defines."""

    HELP: str

    def add_options(self, parser: argparse.ArgumentParser) -> None: ...

    def main(self, options: argparse.Namespace) -> int: ...


def main(words: Sequence[str] | None = None) -> int:
    """Run a command with these words, by default those of the process. Returns the exit status."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters that the encoding lacks
    try:
        return run_command(sys.argv[1:] if words is None else words)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        closed = os.open(os.devnull, os.O_WRONLY)  # the reader has closed the pipe
        os.dup2(closed, sys.stdout.fileno())
        return 1
    except (SessionLocked, ImportError, OSError, ValueError) as error:
        Terminal(sys.stderr).say(re.sub(r"^\[Errno \d+\] ", "", str(error)), RED)
        return 2


def run_command(words: Sequence[str]) -> int:
    """Run the command that the first word names, or the chat."""
    if [*words] == ["help"]:
        words = ["--help"]
    word = words[0] if words else ""
    if word in COMMANDS:
        command = load(COMMANDS[word])
        return command.main(parser(word, command).parse_args(words[1:]))
    refuse_unknown(words)
    chat = load(CHAT)
    return chat.main(parser("", chat).parse_args(words))


def load(module: str) -> Command:
    """Import the module of a command. Raises ImportError if it isn't installed."""
    try:
        return cast(Command, import_module(module))
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == module.partition(".")[0]:
            raise ImportError(NO_CHAT) from None
        raise


def refuse_unknown(words: Sequence[str]) -> None:
    """Raise ValueError for a mistyped command, which would otherwise be sent as a prompt."""
    word = words[0] if words else ""
    near = [name for name in COMMANDS if sorted(word) == sorted(name)]  # "veiw"
    for name in near or get_close_matches(word, COMMANDS, cutoff=MISTYPED):
        raise ValueError(f"unknown command {word}. Did you mean {name}? {AS_PROMPT}")


def parser(name: str, command: Command) -> argparse.ArgumentParser:
    """A parser for the options of a command. The chat's name is ""."""
    raw = argparse.RawDescriptionHelpFormatter
    program = f"agentloop {name}".strip()
    parser = argparse.ArgumentParser(program, description=command.HELP, formatter_class=raw)
    if not name:
        others = [f"  {other:8} {load(COMMANDS[other]).HELP}" for other in COMMANDS]
        parser.epilog = "\n".join(["other commands:", *others, "", import_module(CHAT).EPILOG])
        parser.add_argument("--version", action="version", version=f"agentloop {__version__}")
    command.add_options(parser)
    return parser
