"""`agentloop replay`: the turns of a session as text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import AssistantMessage, Message, ToolCall, ToolCallEvent, ToolMessage, Usage, UserMessage
from ..common.nested import InnerCall, InnerResult
from ..common.records import from_dict
from ..common.subagents import SubAgentRecord
from ..events import events_of
from ..transcript import (
    Record,
    RunEnd,
    RunStart,
    SideRequest,
    is_from_user,
)
from .terminal import BOLD, DIM, RED, Terminal, plain
from .view import logs_of, path_of

HELP = "Print a session turn by turn."


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="SESSION", help="the file or the name of the session")


def main(options: argparse.Namespace) -> int:
    replay = Replay(Terminal(sys.stdout))
    for log in logs_of(path_of(options.file)):
        replay.show(log)
    return 0


class Replay:
    """Prints turns in the format of the chat, with the numbers of `agentloop view`.

    name: "Turn", or the name of the sub-agent.
    """

    def __init__(self, terminal: Terminal, name: str = "Turn") -> None:
        self.terminal, self.name = terminal, name
        self.number = 0
        self.turns = dict[Record, str]()  # the names of replies and failed requests
        self.messages = set[Record]()
        self.errors = list[str]()  # errors of the newest turn's tools
        self.inner = dict[str, tuple[str, list[Record]]]()  # sub-agents, by call id

    def show(self, log: Sequence[Record]) -> None:
        """Print a log. If it replaces another one, it begins with the messages that remain."""
        runs = (at for at, record in enumerate(log) if isinstance(record, RunStart))
        begin = next(runs, len(log))
        remaining = [record for record in log[:begin] if isinstance(record, Message)]
        self.take_back({*self.turns}.difference(remaining))
        new = [message for message in remaining if message not in self.messages]
        for record in [*new, *log[begin:]]:
            if isinstance(record, Message):
                self.messages.add(record)
            self.take(record)
        for call_id in [*self.inner]:  # those that have no result
            self.show_inner(call_id)

    def take_back(self, gone: set[Record]) -> None:
        """Print the names of turns that the user has taken back."""
        names = [self.turns.pop(record) for record in [*self.turns] if record in gone]
        if names:
            self.terminal.say(f"\nTaken back: {', '.join(names)}", DIM)

    def show_inner(self, call_id: str) -> None:
        """Print what a call's sub-agent did."""
        if call_id in self.inner:
            name, records = self.inner.pop(call_id)
            Replay(self.terminal, name).show(records)

    def take(self, record: Record) -> None:
        match record:
            case UserMessage() if is_from_user(record):
                self.terminal.say(f"\n> {record.text}", BOLD)
            case UserMessage():
                self.terminal.say(f"\n({record.text})", DIM)
            case AssistantMessage():
                self.print_reply(record)
            case SideRequest() if record.purpose:
                self.terminal.say(f"({record.purpose}) {record.text}", DIM)
            case SubAgentRecord():
                _, records = self.inner.setdefault(record.call_id, (record.agent, []))
                records.append(from_dict(record.record))
            case InnerCall():
                self.print_call(record.call)
            case ToolMessage():
                self.print_result(record)
            case InnerResult():
                self.print_result(record.result)
            case RunEnd():
                self.print_end(record)
            case _:
                pass

    def begin_turn(self, record: Record, text: str, style: str) -> None:
        """Print the heading of a turn, which is a reply or a failed request."""
        self.number += 1
        self.errors = []
        self.turns[record] = name = f"{self.name} {self.number}"
        self.terminal.say(f"\n{name}{text}", style)

    def print_reply(self, reply: AssistantMessage) -> None:
        usage = reply.usage or Usage()
        tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        about = f": {reply.model or reply.stop_reason}, {tokens}, {reply.seconds or 0:.2f} s"
        self.begin_turn(reply, about, DIM)
        for event in events_of(reply):
            self.terminal.show(event)
        for call in reply.tool_calls:
            self.print_call(call)

    def print_call(self, call: ToolCall) -> None:
        """Print a call of the model or of another tool."""
        self.terminal.show(ToolCallEvent(call.name, call.parsed or {}, call.id, call.parent_id))

    def print_result(self, result: ToolMessage) -> None:
        """Print the result of a call, after the turns of its sub-agent."""
        self.show_inner(result.tool_call_id)
        if result.is_error:
            self.errors.append(result.text)
        for event in events_of(result):
            self.terminal.show(event)

    def print_end(self, end: RunEnd) -> None:
        """Print the end of a run. If its error isn't that of a tool, a request failed."""
        if end.stop_reason == "error" and end.error not in self.errors:
            self.begin_turn(end, " failed.", RED)
        self.terminal.say(f"The run ended: {end.stop_reason} {plain(end.error)}".rstrip(), DIM)
