"""`agentloop replay`: the turns of a session as text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import AssistantMessage, ToolCallEvent, Usage, UserMessage
from ..common.store import read_log
from ..events import events_of
from ..messages import Record, RunEnd
from ..transcript import is_own
from .terminal import BOLD, DIM, RED, EventPrinter, Terminal, plain
from .view import path_of


def main(options: argparse.Namespace) -> int:
    """Print a session turn by turn.

    file SESSION  the file or the name of the session
    """
    show(Terminal(sys.stdout), read_log(path_of(options.file)))
    return 0


def show(terminal: Terminal, log: Sequence[Record]) -> None:
    """Print each turn in the format of the chat, with its model, tokens and duration."""
    printer = EventPrinter(terminal)
    turn = 0
    for record in log:
        if is_own(record):
            terminal.say(f"\n> {record.text}", BOLD)
        elif isinstance(record, UserMessage):
            terminal.say(f"\n({record.text})", DIM)
        elif isinstance(record, RunEnd):
            if record.stop_reason == "error":
                terminal.say(f"\nTurn {turn + 1} failed.", RED)
            terminal.say(f"The run ended: {record.stop_reason} {plain(record.error)}".rstrip(), DIM)
        elif isinstance(record, AssistantMessage):
            turn += 1
            usage = record.usage or Usage()
            tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
            seconds = f"{record.seconds or 0:.2f} s"
            terminal.say(
                f"\nTurn {turn}: {record.model or record.stop_reason}, {tokens}, {seconds}", DIM
            )
        for event in events_of(record):
            printer(event)
        if isinstance(record, AssistantMessage):
            for call in record.tool_calls:
                printer(ToolCallEvent(call.name, call.parsed or {}, call.id))
