"""What a chat in a terminal looks like: Markdown, calls with their results, changes of files."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from difflib import unified_diff
from itertools import cycle
from pathlib import Path
from pydoc import pager
from typing import ClassVar

from markdown_it import MarkdownIt
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.utils import is_dumb_terminal
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Lines
from rich.markdown import Markdown, TableElement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agentloop import ToolCall, events
from agentloop.cli.terminal import CYAN, DIM, RED, arguments_of, exact, one_line, safe
from agentloop.messages import JSON
from agentloop.mixins.approval import Rule
from agentloop.toolkits.shell import as_displayed

from .conversation import Chat, Setup
from .mcp_questions import question_text
from .standing_approvals import EDITS, MODES

FOLDED = 6  # maximum number of displayed lines of a result
BOX_WIDTH = 4  # columns of the borders of a box
GUTTER = " " * 7  # the line number and the sign before the text of a changed line
COLOURS = {"-": "red", "+": "green", " ": "dim"}  # by sign
BLOCK_START = re.compile(r"(?<=\n\n)\S")  # of Markdown
MOST_COMPARED = 16_000_000  # maximum of a diff's changed lines times the lines of the file
MOST_OUTPUT = 10_000  # maximum number of characters of a command's recent output


# HTML, images and link definitions remain text: rich would omit `<String>`, and their URLs
PARSER = MarkdownIt().enable(["strikethrough", "table"])
PARSER.disable(["html_inline", "html_block", "image", "reference"])


class WholeTable(TableElement):
    """A table whose narrow columns wrap long words. In rich's own, they'd be cut off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class WholeMarkdown(Markdown):
    """Markdown that shows all of its text."""

    elements: ClassVar = {**Markdown.elements, "table_open": WholeTable}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = PARSER.parse(safe(text))


class RenderedChat(Chat):
    """A chat with formatted output.

    text: the Markdown of a reply that isn't complete yet.
    output: what a running command has printed recently, or the recent thinking.
    drafted: how many characters the calls have that the model is writing.
    calls: a line for each running call, and the file that it changes with the text before the
        change, by call id.
    previewed: ids of the calls whose changes a question has shown.
    ended: ids of the background commands whose end was told.
    folded: texts of which only a part was shown, with titles.
    mode: a key of MODES, "allow all" after --yes; or "" until the user chooses one.
    """

    def __init__(self, setup: Setup) -> None:
        self.text = self.output = ""
        self.mode = "allow all" if setup.yes else ""
        self.drafted = 0
        self.calls: dict[str, tuple[str, Path | None, str]] = {}
        self.previewed = set[str]()
        self.ended = set[str]()
        self.folded = list[tuple[str, str]]()
        self.console = Console(highlight=False)
        super().__init__(setup)
        self.modes = cycle([mode for mode in MODES if setup.yes or mode != "allow all"])
        self.shell.on_output = self.own_shell.on_output = self.append_output

    def next_mode(self, _: object) -> None:
        """Switch to the approval settings of the next mode."""
        self.mode = next(self.modes)
        approval_mode, unasked = MODES[self.mode]
        rules = [*self.rules, *(Rule("allow", name) for name in unasked)]
        if approval_mode == "plan":
            rules = [rule for rule in rules if rule.verdict != "allow"]
        self.agent.approval_mode, self.agent.approval_rules = approval_mode, rules
        if is_dumb_terminal():  # there's no status line
            self.note(f"Mode: {self.mode}.")

    def show(self, event: events.Event) -> None:
        """Show an event."""
        match event:
            case events.ThinkingDeltaEvent():
                self.append_output(event.content)
            case events.ToolCallDeltaEvent():
                self.drafted += len(event.content)
                self.output = f"writing a call of {event.tool}: {self.drafted:,} characters"
            case events.HiddenUserMessageEvent() | events.FinalResponseEvent():
                pass  # after an interruption, `show_incomplete` displays the output
            case _:
                self.output = ""
                self.drafted = 0
                self.show_reply(event)

    def show_reply(self, event: events.Event) -> None:
        """Show a text, a complete call, or a result."""
        match event:
            case events.TextDeltaEvent():
                self.text += event.content
                if BLOCK_START.search(self.text, len(self.text) - len(event.content)):
                    complete, self.text = split_blocks(self.text)
                    self.markdown(complete)
            case events.TextEvent():
                self.markdown(self.text or event.content)  # some servers do not support streaming
                self.text = ""
            case events.ThinkingEvent():
                self.fold(event.content, "thinking")
            case events.ToolCallEvent("ask_user"):
                pass  # `show_question` follows
            case events.ToolCallEvent():
                self.begin_call(event)
            case events.ToolResultEvent():
                self.show_result(event)
            case events.CompactionEvent():
                self.note("Summarized:")
                self.markdown(event.summary)
            case _:
                pass

    def begin_call(self, call: events.ToolCallEvent) -> None:
        """Add a call to those that are running, with the file that it changes."""
        what, file = arguments_of(call.args), None
        if call.tool in EDITS:
            what = str(call.args.get("path"))
            if call.tool_call_id not in self.previewed:
                file = self.root / what
        before = text_of(file) if file else ""
        self.calls[call.tool_call_id] = f"{call.tool} {what}", file, before

    def show_result(self, result: events.ToolResultEvent) -> None:
        """Show a call with its result, or with the changes of its file."""
        line, file, before = self.calls.pop(result.tool_call_id, (result.tool, None, ""))
        self.terminal.line(f"* {line}", RED if result.is_error else CYAN)
        diff = self.diff(before, text_of(file)) if file and not result.is_error else None
        if diff:
            self.console.print(self.fold_lines(diff, line))
        else:
            self.fold(result.result, line)

    def show_question(self) -> None:
        """Show the first open question; if an MCP server asks it, with its call."""
        for pending in self.agent.pending:
            self.calls.pop(pending.id, None)  # not interrupted
        if not (call := self.question):
            return
        own = self.agent.conversation.state_of(call).call
        if own.name != "ask_user":
            self.terminal.line(f"* {own.name} {arguments_of(own.parsed or {})}", CYAN)
        self.markdown(question_text(call.parsed or {}))

    def running(self) -> list[str]:
        """Lines about calls that run, their recent output, and background commands."""
        lines = [f"* {line}" for line, *_ in self.calls.values()]
        room = self.terminal.width - 2
        lines += [f"  {line[-room:]}" for line in self.shown_output.splitlines()[-3:]]
        for id, (task, _) in self.shell.background.items():
            if not task.done():
                lines.append(f"background command {id}: {task.get_name()}")
        return lines

    def report_ended(self) -> None:
        """Tell the user and the model about background commands that have ended."""
        if self.agent.running or self.agent.pending:
            return
        for id, (task, _) in self.shell.background.items():
            if task.done() and id not in self.ended:
                self.ended.add(id)
                text = f"Background command {id} has ended: {task.get_name()}"
                self.terminal.line(f"({text})", DIM)
                with suppress(OSError):  # a full disk, which the next message reports
                    self.agent.add_note(text)

    def append_output(self, piece: str) -> None:
        """Append to the recent output of a command."""
        self.output = self.output[-MOST_OUTPUT:] + piece

    @property
    def shown_output(self) -> str:
        """The recent output as a terminal shows it, with other control characters escaped."""
        return safe(as_displayed(self.output))

    def show_incomplete(self) -> None:
        """Show text, calls and output that aren't complete yet."""
        self.markdown(self.text)
        for line, *_ in self.calls.values():
            self.terminal.line(f"* {line}  (interrupted)", RED)
        output, was_running = self.shown_output, bool(self.calls)
        self.fold(output, "interrupted")
        self.calls.clear()
        self.text = self.output = ""
        if output and was_running:
            self.agent.add_note(f"Output of the command before the interruption:\n{output}")

    def rendered(self, text: str) -> str:
        """Render Markdown for this terminal; a screen reader gets the source."""
        if is_dumb_terminal():
            return safe(text).strip("\n")
        with self.console.capture() as capture:
            self.console.print(WholeMarkdown(text))
        # a narrower terminal would wrap padded lines
        return re.sub("(?m) +$", "", capture.get().strip("\n"))

    def markdown(self, text: str) -> None:
        """Print Markdown."""
        if text.strip():
            print(f"\n{self.rendered(text)}")

    def fold(self, text: str, title: str) -> None:
        """Print all of a short result, or the beginning and the end of a long one."""
        lines = lines_of(text.strip("\n"))
        longest = max(map(len, lines), default=0)
        if len(lines) > FOLDED or longest > self.terminal.width - 3:
            self.folded.append((text, title))
        if len(lines) > FOLDED:
            lines[2:-3] = [f"... {len(lines) - 5} more lines (Ctrl-O)"]
        for line in lines:
            self.terminal.line(f"  {line}", DIM)

    def fold_lines(self, text: Text, title: str) -> Text:
        """Leave out the middle of a text that's higher than the screen."""
        half = max(self.console.height - 10, FOLDED) // 2
        lines = self.wrap(text)
        if len(lines) <= 2 * half:
            return text
        self.folded.append((text.plain, title))
        more = Text(f"... {len(lines) - 2 * half} more lines (Ctrl-O)", "dim")
        return Text("\n").join([*lines[:half], more, *lines[-half:]])

    def wrap(self, text: Text) -> Lines:
        """The lines of a text in a box."""
        return text.wrap(self.console, self.console.width - BOX_WIDTH, overflow="fold")

    def unfold(self, _: object) -> None:
        """Show the text that was folded last, in a pager if it's longer than the screen."""
        if not self.folded:
            return
        text, title = self.folded.pop()
        if len(self.wrap(Text(text))) < self.console.height:
            self.box(text, title)
        else:
            run_in_terminal(lambda: pager(safe(text)), in_executor=True)

    def diff(self, before: str, after: str) -> Text:
        """The differences of two texts, with the line numbers of the second one.

        It's empty if too many lines changed.
        """
        width = self.console.width - BOX_WIDTH - len(GUTTER)
        number, diff = 0, Text()
        for line in changed_lines(lines_of(before), lines_of(after)):
            if start := re.match(r"@@ .*\+(\d+)", line):
                number = int(start[1])
                continue
            first = f"{'':5} -"
            if line[0] != "-":
                first = f"{number:5} {line[0]}"
                number += 1
            pieces = chop_cells(exact(line[1:]).expandtabs(4), width)
            wrapped = f"\n{GUTTER}".join(pieces)
            diff.append(f"{first}{wrapped}\n", COLOURS[line[0]])
        diff.rstrip()
        return diff

    def preview(self, tool: str, args: JSON) -> Text:
        """What a write or an edit with these validated arguments will change."""
        before = after = text_of(self.root / args["path"])
        arguments = Text(exact(all_of(args)))
        if tool == "write":
            after = args["content"]
        else:
            for edit in args.get("edits", [args]):
                if edit["old_text"] not in after:  # an earlier call of the turn will write it
                    return arguments
                after = after.replace(edit["old_text"], edit["new_text"])
        # no difference if only line ends change, or too many lines change
        return self.diff(before, after) or arguments

    def draw_question(self, call: ToolCall, owner: str) -> None:
        """Show a call that needs approval. If it's a sub-agent's, `owner` is its name."""
        args, name = call.parsed or {}, call.name
        shown, title = Text(exact(all_of(args))), name
        if owner:
            title = f"{name} of {owner}"
        elif name in EDITS:
            self.previewed.add(call.id)
            shown, title = self.preview(name, args), f"{name} {args['path']}"
            if cell_len(title) > self.console.width - BOX_WIDTH - 2:  # it'll be cut off
                shown = Text("\n").join([Text(exact(title)), shown])
        elif name == "bash":
            where = "the background, in " if args.get("background") else ""
            shown = Text(exact(str(args["command"])))
            title = f"bash in {where}{self.shell.cwd}"
        self.box(self.fold_lines(shown, title), title, self.place_in_turn(call))

    def place_in_turn(self, call: ToolCall) -> str:
        """Where a call comes among those of its turn; "" if it's the only one."""
        ids = [state.call.id for state in self.agent.conversation.open_calls]
        if call.id not in ids or len(ids) == 1:
            return ""
        return f"call {ids.index(call.id) + 1} of {len(ids)}: none starts yet"

    def box(self, content: str | Text, title: str, subtitle: str = "") -> None:
        """Print text in a box; below its title for a screen reader."""
        text = Text(exact(content)) if isinstance(content, str) else content
        if is_dumb_terminal():
            self.terminal.say(f"{title}: {subtitle}\n{text.plain}")
            return
        head = Text(one_line(title), overflow="ellipsis")
        self.console.print(Panel(text, title=head, subtitle=subtitle or None))


def all_of(args: JSON) -> str:
    """Arguments, one per line. Further lines of an argument are indented."""
    return "\n".join(f"{key}: {args[key]}".replace("\n", "\n  ") for key in args)


def text_of(file: Path) -> str:
    """The text of a file, or "" if there's none."""
    return file.read_text("utf-8", "replace") if file.is_file() else ""


def lines_of(text: str) -> list[str]:
    """Split a text into lines as an editor does. `splitlines` would also split at U+0085 and others."""
    return re.split("\r?\n", text.removesuffix("\n")) if text else []


def changed_lines(before: list[str], after: list[str]) -> list[str]:
    """The lines of a diff. There are none if too many changed: difflib would take minutes."""
    old, new = Counter(before), Counter(after)
    changed = (old - new).total() + (new - old).total()
    if changed * max(len(before), len(after)) > MOST_COMPARED:
        return []
    return [*unified_diff(before, after, n=2, lineterm="")][2:]


def split_blocks(text: str) -> tuple[str, str]:
    """Split Markdown into blocks that are complete, and the last one, which isn't."""
    end, in_code = 0, False
    for match in re.finditer(r"```|\n\n(?=\S)", text):
        if match[0] == "```":
            in_code = not in_code
        elif not in_code:
            end = match.end()
    return text[:end], text[end:]


def last_lines(text: str, count: int) -> str:
    """Cut Markdown down to its last lines. If they begin inside a code block, its first line stays.

    To render the whole text would take longer with every line.
    """
    lines = text.split("\n")
    omitted = "\n".join(lines[:-count])
    opening = ""
    if omitted.count("```") % 2:
        opening = "```" + omitted.rpartition("```")[2].partition("\n")[0] + "\n"
    return opening + "\n".join(lines[-count:])
