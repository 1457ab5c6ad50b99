"""A conversation with a coding agent in a terminal: shown as it comes, asked before it acts."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from ..agent import Agent
from ..errors import AuthenticationFailed, ConnectionFailed, ModelError
from ..events import Event
from ..loop import ChatModel
from ..messages import Result, RunEnd, RunStart, Stop, ToolMessage, UserMessage
from ..mixins.cost import Cost
from ..mixins.session import Session
from ..store import SESSION_DIR, session_path
from ..toolkits.files import Workspace
from ..toolkits.shell import Shell
from ..tools import Tool
from ..transcript import open_calls, view
from .shown import Shown, as_json
from .terminal import BOLD, DIM, GREEN, RED, Terminal, exact

SYSTEM_PROMPT = (
    "You are a coding agent in a terminal, at work in the user's current folder. Look at what is "
    "there before you change it, change no more than the task needs, and run the tests if there "
    "are any. Say briefly, in plain text without Markdown, what you did and what you found."
)
MARKS = {"old_text": ("-", RED), "new_text": ("+", GREEN), "content": ("+", GREEN)}
NOBODY = "(Nobody can be asked here, so this is denied. --yes allows whatever the model wants.)"


class CodingAgent(Session, Cost, Agent):
    """An agent whose conversation is kept if its session has a name, and that knows its cost."""

    system_prompt = SYSTEM_PROMPT


class Chat:
    """One conversation. Use it with `with`: it takes Ctrl-C and an event loop as long as it lasts.

    root: the folder to work in. tools: more of them than those for its files and commands.
    yes: allow everything, unasked; `tools` are never asked for.
    show: gets each event of an answer.
    session, session_dir: where the conversation is kept and goes on, as in `Session`.
    """

    def __init__(
        self,
        llm: ChatModel,
        root: Path,
        terminal: Terminal,
        *,
        yes: bool = False,
        show: Callable[[Event], None] | None = None,
        tools: Sequence[Tool] = (),
        session: str | None = None,
        session_dir: str | Path = SESSION_DIR,
    ) -> None:
        approve = None if yes else self.approve
        self.workspace = Workspace(root, approve=approve)
        self.shell = Shell(root, approve=approve)
        tools = [*self.workspace.tools, *self.shell.tools, *tools]
        self.agent = CodingAgent(llm=llm, tools=tools, session=session, session_dir=session_dir)
        self.terminal, self.show = terminal, show or Shown(terminal)
        self._runner = asyncio.Runner()
        self._always: set[str] = set()  # what the user has said "always" to
        self._state = "idle"  # or "answering", "asking", "stopping"
        self._to_be_stopped = False
        self._summary: asyncio.Task[bool] | None = None  # that was asked for by hand
        self._since = 0.0  # when something happened last

    def __enter__(self) -> Self:
        self._handler = signal.signal(signal.SIGINT, self._on_ctrl_c)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.agent.close()
            if self.agent.session and not self.agent.log:  # nothing was said in it
                session_path(self.agent.session, self.agent.session_dir).unlink(missing_ok=True)
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

    @property
    def unfinished(self) -> bool:
        """Whether there is something to go on with, without a prompt."""
        log = self.agent.log
        return isinstance(next(reversed(view(log)), None), UserMessage | ToolMessage)

    def answer(self, prompt: str | None) -> Result | None:
        """The answer, shown as it comes; without a prompt, the one that did not come to its end.

        None if the model failed, or the session's file. A second Ctrl-C raises KeyboardInterrupt.
        """
        self._begin()
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
        async with self._clock(), self.agent.query_stream(prompt) as stream:
            async for event in stream:
                if self._to_be_stopped:
                    self._stop()
                self.show(event)
                self._since = time.monotonic()
        return stream.result

    def compact(self) -> None:
        """Let the model summarize the conversation, and say what came of it."""
        self._begin()
        self.agent.listeners = [self.show]
        try:
            if not self._runner.run(self._compact()):
                self.terminal.say("(Nothing was summarized.)", DIM)
        except asyncio.CancelledError:
            self.terminal.say("(Stopped; nothing was summarized.)", DIM)
        except (Stop, OSError) as error:
            self.terminal.say(f"(Nothing was summarized: {error})", RED)
        finally:
            self._state, self._summary, self.agent.listeners = "idle", None, []

    async def _compact(self) -> bool:
        async with self._clock():
            self._summary = asyncio.create_task(self.agent.compact())
            if self._state != "answering":  # Ctrl-C came first
                self._summary.cancel()
            return await self._summary

    def _begin(self) -> None:
        self._to_be_stopped, self._state = False, "answering"
        self._since = time.monotonic()
        if isinstance(self.show, Shown):
            self.show.begin()

    @asynccontextmanager
    async def _clock(self) -> AsyncGenerator[None]:
        """Shows in a terminal how many seconds nothing has happened."""

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                if (seconds := int(time.monotonic() - self._since)) > 0:
                    self.terminal.status(f"{seconds} s")

        ticks = asyncio.create_task(tick()) if self.terminal.moves else None
        try:
            yield
        finally:
            if ticks:
                ticks.cancel()
            self.terminal.status("")

    def _on_ctrl_c(self, number: int, frame: object) -> None:
        if self._state != "answering":
            raise KeyboardInterrupt  # at the prompt, at a question, or for the second time
        self._stop()

    def _stop(self) -> None:
        self._state, self._to_be_stopped = "stopping", False
        self.agent.interrupt()
        if (task := self._summary) is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

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
            self._state, self._since = "answering", time.monotonic()

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
