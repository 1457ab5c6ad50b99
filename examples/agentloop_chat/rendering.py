"""Rendering of a terminal chat: Markdown, calls with their results, file changes."""

from __future__ import annotations

import re
from difflib import unified_diff
from itertools import cycle
from pydoc import pager
from typing import Any

from prompt_toolkit.application import run_in_terminal
from rich.console import Console
from rich.containers import Lines
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from agentloop import ToolCall, events
from agentloop.cli.terminal import CYAN, DIM, RED, arguments_of, exact, one_line, safe
from agentloop.mixins.approval import Rule
from agentloop.toolkits.ask import question_text

from .conversation import Chat
from .standing_approvals import EDITS, MODES, Always, always_for

FOLDED = 6  # maximum number of displayed lines of a result
LIVE_WIDTH = 200  # average number of characters of a line in the live area, at most
BLOCK_START = re.compile(r"(?<=\n\n)\S")  # of Markdown
MOST_OUTPUT = 10_000  # maximum number of characters of a command's recent output


class RenderedChat(Chat):
    """A chat with formatted output.

    text: the incomplete Markdown of a reply.
    output: the recent output of a running command.
    calls: a line for every running call, and its file changes, by call id.
    previewed: ids of the calls whose changes were displayed in an approval request.
    folded: texts that were displayed only in part, with titles.
    mode: a key of MODES, or "" before the user has selected a mode.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.text = ""
        self.output = ""
        self.calls: dict[str, tuple[str, Text | None]] = {}
        self.previewed = set[str]()
        self.folded = list[tuple[str, str]]()
        self.mode = self.live_end = ""
        self.live: object = None  # the text and the screen size that `live_end` was rendered for
        self.modes = cycle(MODES)
        self.console = Console(highlight=False)
        super().__init__(*args, **settings)
        self.shell.on_output = self.own_shell.on_output = self.append_output

    def next_mode(self, _: object) -> None:
        """Switch to the approval settings of the next mode."""
        self.mode = next(self.modes)
        approval_mode, unasked = MODES[self.mode]
        rules = [*self.rules, *(Rule("allow", name) for name in unasked)]
        if approval_mode == "plan":
            rules = [rule for rule in rules if rule.verdict != "allow"]
        self.settings |= {"approval_mode": approval_mode, "approval_rules": rules}
        self.agent.approval_mode, self.agent.approval_rules = approval_mode, rules

    def show(self, event: events.Event) -> None:
        """Display an event."""
        match event:
            case events.TextDeltaEvent():
                self.output = ""
                self.text += event.content
                if BLOCK_START.search(self.text, len(self.text) - len(event.content)):
                    complete, self.text = split_blocks(self.text)
                    self.markdown(complete)
            case events.TextEvent():
                self.markdown(self.text or event.content)  # some servers do not support streaming
                self.text = ""
            case events.ThinkingDeltaEvent() | events.ToolCallDeltaEvent():
                self.append_output(event.content)
            case events.ThinkingEvent():
                self.output = ""
                self.fold(event.content, "thinking")
            case events.ToolCallEvent("ask_user"):
                self.output = ""
                self.markdown(question_text(event.args))
            case events.ToolCallEvent():
                self.output = ""
                what = arguments_of(event.args)
                if event.tool in EDITS:
                    what = str(event.args.get("path"))
                diff = None
                if event.tool_call_id not in self.previewed:
                    diff = self.diff(event.tool, event.args)
                self.calls[event.tool_call_id] = f"{event.tool} {what}", diff
            case events.ToolResultEvent():
                self.output = ""
                line, diff = self.calls.pop(event.tool_call_id, (event.tool, None))
                self.terminal.line(f"* {line}", RED if event.is_error else CYAN)
                if diff and not event.is_error:
                    self.console.print(self.fold_lines(diff, line))
                else:
                    self.fold(event.result, line)
            case events.CompactionEvent():
                self.note("Summarized:")
                self.markdown(event.summary)
            case _:
                pass

    def running(self) -> list[str]:
        """Return lines for running calls, recent output, and background commands."""
        lines = [f"* {line}" for line, _ in self.calls.values()]
        room = self.terminal.width - 2
        lines += [f"  {line[-room:]}" for line in self.output.splitlines()[-3:]]
        for id, (task, _) in self.shell.background.items():
            if not task.done():
                lines.append(f"background command {id}: {task.get_name()}")
        return lines

    def append_output(self, piece: str) -> None:
        """Append to the recent output of a command."""
        self.output = self.output[-MOST_OUTPUT:] + safe(piece)

    def show_incomplete(self) -> None:
        """Display incomplete text, calls and output."""
        self.markdown(self.text)
        for line, _ in self.calls.values():
            self.terminal.line(f"* {line}  (interrupted)", RED)
        self.fold(self.output, "interrupted")
        if self.calls and self.output:
            self.agent.add_note(f"Output of the command before the interruption:\n{self.output}")
        self.calls.clear()
        self.text = self.output = ""

    def rendered(self, text: str) -> str:
        """Return Markdown as rendered for this terminal."""
        with self.console.capture() as capture:
            self.console.print(Markdown(safe(text), hyperlinks=False))
        return capture.get().strip("\n")

    def rendered_end(self) -> str:
        """Return the rendered end of the incomplete text, computed once per change."""
        size = self.console.size
        if (self.text, size) != self.live:
            self.live = self.text, size
            self.live_end = self.rendered(last_lines(self.text, size.height))
        return self.live_end

    def markdown(self, text: str) -> None:
        """Print Markdown."""
        if text.strip():
            print(f"\n{self.rendered(text)}")

    def fold(self, text: str, title: str) -> None:
        """Print a short result completely, and the beginning and the end of a long result."""
        lines = text.strip("\n").splitlines()
        longest = max(map(len, lines), default=0)
        if len(lines) > FOLDED or longest > self.terminal.width - 3:
            self.folded.append((text, title))
        if len(lines) > FOLDED:
            lines[2:-3] = [f"... {len(lines) - 5} more lines (Ctrl-O)"]
        for line in lines:
            self.terminal.line(f"  {line}", DIM)

    def fold_lines(self, text: Text, title: str) -> Text:
        """Return a text, truncated to the height of the screen."""
        room = max(self.console.height - 10, FOLDED)
        lines = self.wrap(text)
        if len(lines) <= room:
            return text
        self.folded.append((text.plain, title))
        more = Text(f"... {len(lines) - room} more lines (Ctrl-O)", "dim")
        return Text("\n").join([*lines[:room], more])

    def wrap(self, text: Text) -> Lines:
        """Return the lines of a text in a box."""
        return text.wrap(self.console, self.console.width - 4, overflow="fold")

    def unfold(self, _: object) -> None:
        """Display the most recently folded text, in a pager if longer than the screen."""
        if not self.folded:
            return
        text, title = self.folded.pop()
        if len(self.wrap(Text(text))) < self.console.height:
            self.box(text, title)
        else:
            run_in_terminal(lambda: pager(safe(text)), in_executor=True)

    def diff(self, tool: str, args: dict[str, Any]) -> Text | None:
        """Return the changes of a write or an edit, or None for other tools.

        Line numbers refer to the changed file.
        """
        if tool not in EDITS:
            return None
        file = self.root / str(args.get("path"))
        before = file.read_text("utf-8", "replace") if file.is_file() else ""
        if tool == "write":
            after = str(args.get("content"))
        else:
            after = before
            match args.get("edits", [args]):
                case [*edits]:
                    pass
                case _:  # the arguments are not validated
                    edits = []
            for edit in edits:
                match edit:
                    case {"old_text": old, "new_text": new}:
                        after = after.replace(str(old), str(new))
                    case _:
                        pass
        number, diff = 0, Text()
        lines = unified_diff(before.splitlines(), after.splitlines(), n=2, lineterm="")
        for line in [*lines][2:]:
            if start := re.match(r"@@ .*\+(\d+)", line):
                number = int(start[1])
            elif line[0] == "-":
                diff.append(f"      {exact(line)}\n", "red")
            else:
                diff.append(f"{number:5} {exact(line)}\n", "green" if line[0] == "+" else "dim")
                number += 1
        diff.rstrip()
        return diff

    def draw_question(self, call: ToolCall) -> Always:
        """Display a call that requires approval, and return the standing approval to offer."""
        args, name = call.parsed or {}, call.name
        self.previewed.add(call.id)
        diff = self.diff(name, args)
        shown = Text(exact("\n".join(f"{key}: {args[key]}" for key in args)))
        title = name
        if diff:
            shown, title = diff, f"{name} {args['path']}"
        elif name == "bash":
            where = "the background, in " if args.get("background") else ""
            shown = Text(exact(str(args["command"])))
            title = f"bash in {where}{self.shell.cwd}"
        self.box(self.fold_lines(shown, title), title)
        return always_for(call)

    def box(self, content: str | Text, title: str) -> None:
        """Print text in a box."""
        text = Text(exact(content)) if isinstance(content, str) else content
        self.console.print(Panel(text, title=Text(one_line(title))))


def split_blocks(text: str) -> tuple[str, str]:
    """Split Markdown into complete blocks and the incomplete last block."""
    end, in_code = 0, False
    for match in re.finditer(r"```|\n\n(?=\S)", text):
        if match[0] == "```":
            in_code = not in_code
        elif not in_code:
            end = match.end()
    return text[:end], text[end:]


def last_lines(text: str, count: int) -> str:
    """Return the last lines of Markdown, preceded by the opening line of a truncated code block.

    Rendering the complete text would take longer for every additional line.
    """
    text, omitted = text[-LIVE_WIDTH * count :], text[: -LIVE_WIDTH * count]
    lines = text.split("\n")
    omitted += "\n".join(lines[:-count])
    opening = ""
    if omitted.count("```") % 2:
        opening = "```" + omitted.rpartition("```")[2].partition("\n")[0] + "\n"
    return opening + "\n".join(lines[-count:])
