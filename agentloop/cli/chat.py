"""A conversation with a coding agent in a terminal: shown as it comes, asked before it acts."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from .. import events
from ..agent import Agent
from ..errors import AuthenticationFailed, ConnectionFailed, ModelError
from ..loop import ChatModel
from ..messages import Result, RunEnd, RunStart, ToolMessage, UserMessage
from ..mixins.cost import Cost
from ..mixins.session import Session
from ..saved import SESSION_DIR
from ..toolkits.files import Workspace
from ..toolkits.shell import Shell
from ..tools import Tool
from ..transcript import last_message, open_calls
from .terminal import BOLD, CYAN, DIM, GREEN, RED, Terminal, cut, exact, one_line

SYSTEM_PROMPT = (
    "You are a coding agent in a terminal, at work in the user's current folder. Look at what is "
    "there before you change it, change no more than the task needs, and run the tests if there "
    "are any. Say briefly, in plain text without Markdown, what you did and what you found."
)
HELP = """\
/retry  go on after an error, or after Ctrl-C
/usage  how many tokens this conversation took, and its cost if that is known
/clear  begin a new conversation; a --session begins afresh too
/exit   leave; Ctrl-D does it too
Ctrl-C stops an answer; the conversation goes on. At the prompt, Ctrl-C twice leaves."""
MARKS = {"old_text": ("-", RED), "new_text": ("+", GREEN), "content": ("+", GREEN)}
NOBODY = "(Nobody can be asked here, so this is denied. --yes allows whatever the model wants.)"


class CodingAgent(Session, Cost, Agent):
    """An agent whose conversation is kept if its session has a name, and that knows its cost."""

    system_prompt = SYSTEM_PROMPT


class Chat:
    """One conversation. Use it with `with`: it takes Ctrl-C and an event loop as long as it lasts.

    root: the folder to work in. tools: more of them than those for its files and commands.
    yes: allow everything, unasked.
    shows_text: whether the model's text goes to the terminal as it comes.
    session, session_dir: where the conversation is kept and goes on, as in `Session`.
    """

    def __init__(
        self,
        llm: ChatModel,
        root: Path,
        terminal: Terminal,
        *,
        yes: bool = False,
        shows_text: bool = True,
        tools: Sequence[Tool] = (),
        session: str | None = None,
        session_dir: str | Path = SESSION_DIR,
    ) -> None:
        approve = None if yes else self.approve
        self.workspace = Workspace(root, approve=approve)
        self.shell = Shell(root, approve=approve)
        tools = [*self.workspace.tools, *self.shell.tools, *tools]
        self.agent = CodingAgent(llm=llm, tools=tools, session=session, session_dir=session_dir)
        self.terminal, self.shows_text = terminal, shows_text
        self._runner = asyncio.Runner()
        self._always: set[str] = set()  # what the user has said "always" to
        self._state = "idle"  # or "answering", "asking", "stopping"
        self._to_be_stopped = False
        self._streamed = False  # whether the present reply's text has been shown
        self._open: dict[str, str] = {}  # the calls without a result: what to call each
        self._side_by_side = False

    def __enter__(self) -> Self:
        self._handler = signal.signal(signal.SIGINT, self._on_ctrl_c)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.agent.close()
            self._runner.close()
        finally:
            signal.signal(signal.SIGINT, self._handler)

    def kept(self) -> str:
        """What is in the session so far, in words."""
        messages, calls = len(self.agent.messages), len(open_calls(self.agent.log))
        if not messages:
            return f"(New session {self.agent.session}.)"
        more = f", open calls: {calls}" * bool(calls)
        hint = " /retry goes on where it ended." * self.unfinished
        return f"(Session {self.agent.session}: {messages} messages so far{more}.{hint})"

    def usage(self) -> str:
        """What the conversation has used so far, in words."""
        bill = self.agent.bill
        usage, share = bill.usage, bill.usage.cached_input_tokens / (bill.usage.input_tokens or 1)
        cached = f" ({min(share, 1):.0%} cached)" * (share > 0)
        cost = f", ${bill.cost:.4f}" if bill.cost else ""
        return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out{cost}"

    def sum_up(self) -> None:
        """Say what the conversation took, if there was one."""
        if requests := self.agent.bill.requests:
            marks = [mark for mark in self.agent.log if isinstance(mark, RunStart | RunEnd)]
            runs = ((a, b) for a, b in pairwise(marks) if isinstance(b, RunEnd))
            seconds = sum(end.at - start.at for start, end in runs)
            what = f"{requests} request{'s' * (requests > 1)}, {self.usage()}, {seconds:.1f} s"
            self.terminal.say(f"({what})", DIM)

    def talk(self) -> int:
        """Prompt and answer in turn until the user leaves; returns the exit status."""
        with suppress(ImportError):  # Windows has none, and its console no need of it
            import_module("readline")  # from here on, input() has line editing and a history
        leaving = False
        while True:
            self.terminal.end_line()
            try:
                line = input("> ").strip()
                leaving = False
            except EOFError:
                self.terminal.say("")
                return 0
            except KeyboardInterrupt:
                self.terminal.say("")
                if leaving:
                    return 0
                leaving = True
                self.terminal.say("(Ctrl-C once more leaves.)", DIM)
                continue
            match line:
                case "":
                    pass
                case "/exit" | "/quit":
                    return 0
                case "/help":
                    self.terminal.say(HELP)
                case "/clear":
                    self.agent.clear_history()
                    self.workspace.seen.clear()
                    kept = f" Session {self.agent.session} begins afresh too."
                    kept *= bool(self.agent.session)
                    self.terminal.say(f"(A new conversation.{kept})", DIM)
                case "/usage":
                    self.terminal.say(self.usage(), DIM)
                case "/retry" if self.unfinished:
                    self.answer(None)
                case "/retry":
                    self.terminal.say("(There is nothing to retry.)", DIM)
                case _ if line.startswith("/") and line[1:].isalpha():
                    self.terminal.say(f"(There is no {line}; /help lists what there is.)", DIM)
                case _:
                    self.answer(line)

    @property
    def unfinished(self) -> bool:
        """Whether there is something to go on with, without a prompt."""
        log = self.agent.log
        return bool(open_calls(log)) or isinstance(last_message(log), UserMessage | ToolMessage)

    def answer(self, prompt: str | None) -> Result | None:
        """The answer, shown as it comes; without a prompt, the one that did not come to its end.

        None if the model failed, or the session's file. A second Ctrl-C raises KeyboardInterrupt.
        """
        self._to_be_stopped = self._streamed = self._side_by_side = False
        self._state = "answering"
        self._open.clear()
        result: Result | None = None
        try:
            result = self._runner.run(self._answer(prompt))
        except ModelError as error:
            hint = " (does the server run? see --base-url)" * isinstance(error, ConnectionFailed)
            hint += " (is the key right?)" * isinstance(error, AuthenticationFailed)
            self.terminal.say(f"The model failed: {' '.join(str(error).split())}{hint}", RED)
        except OSError as error:  # a tool's errors are for the model
            self.terminal.say(f"The session cannot be kept: {error}", RED)
        finally:
            self._state = "idle"
            self.terminal.end_line()
        if result and result.stop_reason == "interrupted":
            self.terminal.say("(Stopped. What was done stays done; /retry goes on.)", DIM)
        elif result and result.stop_reason not in ("completed", "done"):
            self.terminal.say(f"(This ended early: {result.stop_reason}.)", DIM)
        return result

    async def _answer(self, prompt: str | None) -> Result | None:
        async with self.agent.query_stream(prompt) as stream:
            async for event in stream:
                if self._to_be_stopped:
                    self._stop()
                self._show(event)
        return stream.result

    def _on_ctrl_c(self, number: int, frame: object) -> None:
        if self._state != "answering":
            raise KeyboardInterrupt  # at the prompt, at a question, or for the second time
        self._stop()

    def _stop(self) -> None:
        self._state, self._to_be_stopped = "stopping", False
        self.agent.interrupt()

    def _show(self, event: events.Event) -> None:
        match event:
            case events.TextDeltaEvent(content=piece):
                if not self._streamed:
                    self.terminal.end_line()  # of the thinking before it
                self._streamed = True
                self._text(piece)
            case events.TextEvent(content=text):
                if not self._streamed:  # some servers do not stream
                    self._text(text)
                self._streamed = False
                self.terminal.end_line()
            case events.ThinkingDeltaEvent(content=piece):
                if self.terminal.colour:  # else one could not tell it from the answer
                    self.terminal.text(piece, DIM)
            case events.ThinkingEvent():
                self.terminal.end_line()
            case events.ToolCallEvent(tool=tool, args=args, tool_call_id=call_id):
                self._streamed = False
                line = f"{tool} {arguments_of(args)}"
                self.terminal.line(f"* {line}", CYAN)
                self._open[call_id] = cut(one_line(line), 40)
                self._side_by_side |= len(self._open) > 1
            case events.ToolResultEvent(tool=tool, result=result, tool_call_id=call_id):
                name = self._open.pop(call_id, tool)
                which = f"{name}: " * self._side_by_side  # these come in any order
                self._side_by_side &= bool(self._open)
                style = RED if event.is_error else DIM
                self.terminal.line(f"  {which}{outline(tool, result)}", style)
            case events.CompactionEvent(tokens_before=before, tokens_after=after):
                self.terminal.say(f"(Summarized: {before:,} tokens are now {after:,}.)", DIM)
            case _:
                pass

    def _text(self, text: str) -> None:
        if self.shows_text:
            self.terminal.text(text)

    async def approve(self, tool: str, arguments: dict[str, Any]) -> bool:
        """Whether the user allows a call.

        The event loop stands still until they have answered, on purpose: so nothing else is
        printed, started or timed out meanwhile.
        """
        key, scope = "files", "each write and edit of a file in this folder"  # what "always" covers
        if tool == "bash":
            key = json.dumps([str(self.shell.cwd), arguments["command"]])
            scope = "this very command in this folder"
        if self._state != "answering" or self._to_be_stopped:
            return False
        if key in self._always:
            return True
        if not self.terminal.asks:
            self.terminal.say(NOBODY, DIM)
            return False
        self._state = "asking"
        try:
            return self._ask(tool, arguments, key, scope)
        except KeyboardInterrupt:
            # Denied first, and stopped when that is in the log: so the model knows that this
            # call has done nothing.
            self.terminal.say("")
            self._to_be_stopped = True
            return False
        finally:
            self._state = "answering"

    def _ask(self, tool: str, arguments: dict[str, Any], key: str, scope: str) -> bool:
        folder = self.shell.cwd if tool == "bash" else self.workspace.root
        self.terminal.say(f"May it call {tool} in {folder}?", BOLD)
        for name, value in arguments.items():
            self._show_argument(name, value if isinstance(value, str) else as_json(value))
        self.terminal.say(f"  (always: {scope}, until you leave)", DIM)
        while True:
            answer = self.terminal.ask("  yes, no or always? [y/N/a] > ")
            if answer in ("a", "always"):
                self._always.add(key)
            if answer in ("y", "yes", "a", "always"):
                return True
            if answer in ("n", "no", ""):
                return False

    def _show_argument(self, name: str, text: str) -> None:
        """All of an argument: nobody is to allow what they have not seen."""
        mark, style = MARKS.get(name, ("|", ""))
        spelled = " (what cannot be shown is spelled out)" if exact(text) != text else ""
        self.terminal.say(f"  {name}:{spelled}", DIM)
        self.terminal.block(text, f"  {mark} ", style)


def arguments_of(args: dict[str, Any]) -> str:
    """Arguments in a line: the one that matters most without its name."""
    first = next((name for name in ("command", "path", "pattern") if name in args), None)
    words = [str(args[first])] if first else []
    rest = {name: value for name, value in args.items() if name != first}
    return " ".join([*words, *(f"{name}={as_json(value)}" for name, value in rest.items())])


def outline(tool: str, result: str) -> str:
    """A result in a line: of a command's output the end, of everything else the beginning."""
    lines = [line.strip() for line in result.split("\n") if line.strip()]
    if len(lines) < 2:
        return "".join(lines) or "(nothing)"
    if tool == "bash":
        return f"{len(lines)} lines, the last: {'  '.join(lines[-2:])}"
    return f"{len(lines)} lines, the first: {lines[0]}"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
