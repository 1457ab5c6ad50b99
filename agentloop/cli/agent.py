"""The coding agent of the command, a conversation with it, and its slash commands.

Copy with: cli/terminal.py and the core.
"""

from __future__ import annotations

import asyncio
import platform
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256
from itertools import count
from mimetypes import guess_type
from pathlib import Path
from typing import Any, Self

from .. import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Cost,
    ImagePart,
    ModelError,
    Request,
    Result,
    Session,
    TextPart,
    Tool,
    ToolCall,
    ToolError,
    events,
    sessions,
)
from ..common.store import session_path
from ..common.tokens import context_window, message_tokens, tool_tokens
from ..messages import IMAGE_TYPES, Part, Record, RunEnd
from ..mixins.approval import Approval, Rule
from ..mixins.compaction import UNKNOWN_WINDOW
from ..mixins.session import SessionInfo
from ..models.http import HTTPModel
from ..models.scripted import ScriptedModel
from ..toolkits.files import Workspace
from ..toolkits.mcp import MCPTools, mcp_servers
from ..toolkits.shell import MAX_TIMEOUT, Shell
from ..toolkits.skills import Skills
from ..transcript import is_own, newest_prompt, newest_run, view
from .remembering import Remembering
from .terminal import BOLD, DIM, RED, Shown, Terminal, plain

SYSTEM_PROMPT = (
    "You are a coding agent in a terminal, at work in the user's current folder. Look at what is "
    "there before you change it, change no more than the task needs, and run the tests if there "
    "are any. Say briefly what you did and what you found. In a message, @path names a file."
)
PLACE = "\n\nIt is {}. The folder is {}, the system {}."
CUT_OFF = "Your answer was cut off here by an error. Go on where it ends."
GO_ON = "The run was cut off. Enter goes on with it."
NOBODY = "Nobody can be asked here, so this is denied. --yes allows whatever the model wants."


class CodingAgent(Skills, Approval, Session, Cost, Remembering, MCPTools, Agent):
    """An agent that asks before it acts. What it said before an answer was cut off is kept."""

    async def call_model(self, request: Request) -> AssistantMessage:
        self._said = ""
        try:
            return await super().call_model(request)
        except (asyncio.CancelledError, ModelError) as error:
            if self._said.strip():
                self.add(AssistantMessage(self._said, stop_reason="interrupted"))
                if isinstance(error, ModelError):
                    self.tell(CUT_OFF)
            raise

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.TextDeltaEvent):
            self._said += event.content
        super().emit(event)


class Chat:
    """One conversation. Use it with `with`: it has an event loop as long as it lasts.

    root: the folder to work in.
    yes: allow everything without asking. rules: what is allowed, asked for or denied.
    tools: tools besides those for files and commands; they run without asking.
    window: the size of the model's context window in tokens, if the user says it.
    settings: further settings of the agent.

    A method `do_x` is the command /x, and its docstring the help. It gets what follows the command.
    """

    def __init__(
        self,
        llm: HTTPModel | ScriptedModel,
        root: Path,
        terminal: Terminal,
        *,
        yes: bool = False,
        rules: Sequence[Rule] = (),
        tools: Sequence[Tool] = (),
        window: int | None = None,
        **settings: Any,
    ) -> None:
        self.terminal, self.root = terminal, root
        self.window = window or context_window(llm.model) or UNKNOWN_WINDOW
        self.workspace, self.shell = Workspace(root), Shell(root)
        self.runner = asyncio.Runner()
        self.shown = Shown(terminal)
        self.settings: dict[str, Any] = settings | {
            "llm": llm,
            "tools": [*self.workspace.tools, *self.shell.tools, *tools],
            "system_prompt": SYSTEM_PROMPT
            + PLACE.format(datetime.now().date(), root, platform.system()),
            "approval_mode": "auto" if yes else "ask",
            "approval_rules": [*rules, *(Rule("allow", tool.name) for tool in tools)],
            "approval_callback": self.ask,
            "approval_timeout": 86_400.0,  # a day
            "memory_dir": root,
            "compaction": CompactionConfig(context_window=self.window),
            "listeners": [self.show],
        }
        self.agent = CodingAgent(**self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.agent.close()
        self.runner.close()

    @asynccontextmanager
    async def servers(self, path: str | None) -> AsyncGenerator[None]:
        """Offer the tools of the MCP servers in a file, and name the servers that do not start."""
        if path is None:
            yield
            return
        self.note("Starting the MCP servers ...")
        async with mcp_servers(path) as servers:
            self.settings["mcp_servers"] = self.agent.mcp_servers = servers
            for server in servers:
                if server.error:
                    self.terminal.say(str(server.error), RED)
            yield

    def greet(self) -> None:
        """Say which session this is, show its last exchange, and say what was cut off."""
        name, messages = self.agent.session, self.agent.messages
        self.note(f"Session {name}: {len(messages)} messages. Ctrl-D leaves, /help says more.")
        for message in messages[newest_prompt(messages) :]:
            if is_own(message):
                self.terminal.say(f"> {message.text}", BOLD)
            elif isinstance(message, AssistantMessage):
                self.show(events.TextEvent(message.text))
        if is_cut_off(self.agent.log):
            self.note(GO_ON)

    def note(self, text: str) -> None:
        """Print a remark of the program."""
        self.terminal.say(f"({text})", DIM)

    async def ask(self, call: ToolCall, reason: str) -> bool | str:
        """Deny a call, as there is nobody to ask."""
        self.note(NOBODY)
        return False

    def show(self, event: events.Event) -> None:
        """Show an event."""
        self.shown(event)

    def answer(self, prompt: str | None) -> Result | None:
        """Do as `reply`, from outside of an event loop. Ctrl-C raises KeyboardInterrupt."""
        return self.runner.run(self.reply(prompt))

    async def reply(self, prompt: str | None) -> Result | None:
        """Answer a prompt, and show the answer as it comes. None goes on with a cut-off run.

        If the model has asked something (`ask_user`), the prompt is the answer. Return None if the
        model failed. Raises OSError if the session cannot be kept.
        """
        questions = [call for call in self.agent.pending if call.name == "ask_user"]
        if prompt and questions:
            self.agent.answer(questions[0].id, prompt)
            prompt = None
        try:
            result = await self.agent.run(prompt and self.with_images(prompt))
        except ModelError as error:
            self.terminal.say(f"{self.agent.llm.model} failed: {plain(error)}", RED)
            return None
        if result.stop_reason not in ("completed", "done", "needs_answer"):
            self.note(f"Stopped: {result.stop_reason}.")
        return result

    def with_images(self, prompt: str) -> str | list[Part]:
        """Return the prompt with the images that it names as @path."""
        images: list[Part] = []
        for found in re.findall(r'(?<!\S)@("[^"]+"|\S+)', prompt):
            path = found.strip('"')
            if image := image_at(self.root / path):
                images.append(image)
            elif guess_type(path)[0] in IMAGE_TYPES:
                self.note(f"There is no image {path}.")
        return [TextPart(prompt), *images] if images else prompt

    async def run_command(self, command: str) -> None:
        """Run a command of the user's, and let the model read what it printed."""
        try:
            result = await self.shell.bash(command, MAX_TIMEOUT)
        except ToolError as error:
            result = str(error)
        self.show(events.ToolResultEvent(command, result, ""))
        self.agent.tell(f"The user ran this command: {command}\n\n{result}")

    def usage(self) -> str:
        """Say in words what the conversation has used so far."""
        bill = self.agent.bill
        cost = f", ${bill.cost:.4f}" if bill.cost else ""
        return f"{bill.usage.input_tokens:,} tokens in, {bill.usage.output_tokens:,} out{cost}"

    async def meter(self) -> str:
        """Say how full the context window is, in tokens, and of what."""
        context = await self.agent.context()
        start = len(context) - len(self.agent.messages)
        system = sum(map(message_tokens, context[:start]))
        messages = sum(map(message_tokens, context[start:]))
        tools = tool_tokens(self.agent.toolset())
        return (
            f"context {system + tools + messages:,} of {self.window:,}: "
            f"system {system:,}, tools {tools:,}, messages {messages:,}"
        )

    def use_session(self, name: str) -> None:
        """Close this session, and go on with the one of this name."""
        self.settings["session"] = name
        agent = CodingAgent(**self.settings)
        self.agent.close()
        self.agent = agent
        self.greet()

    def take_back(self) -> str:
        """Forget the newest prompt and what followed it. Return the prompt."""
        log = [*self.agent.log]
        at = newest_prompt(log)
        self.agent.load_history(view(log[:at]))
        self.workspace.seen.clear()
        self.note("Taken back. What was done to files stays.")
        prompts = [record.text for record in log[at:] if is_own(record)]
        return prompts[0] if prompts else ""

    # ---- commands

    async def do_new(self, rest: str) -> None:
        """begin anew, in a session of its own (or /clear)"""
        self.use_session(free_name(self.root))

    async def do_resume(self, rest: str) -> None:
        """go on with the session NAME; Tab completes it"""
        found = sessions_of(self.root)
        if rest not in [each.name for each in found]:
            raise ValueError("\n".join(["There are these sessions:", *map(described, found)]))
        self.use_session(rest)

    async def do_fork(self, rest: str) -> None:
        """go on in a copy, called NAME if you say one; this session stays as it is"""
        before = self.agent
        name = free_name(self.root)
        if rest:
            name = f"{stem(self.root)}-{rest}"
        self.agent = before.fork(session=name)
        before.close()
        self.note(f"This is session {name} now; {before.session} stays as it was.")

    async def do_model(self, rest: str) -> None:
        """go on with the model NAME of the same provider"""
        old: Any = self.agent.llm
        if rest:
            self.agent.llm = self.settings["llm"] = type(old)(rest, base_url=old.base_url)
        self.note(f"The model is {self.agent.llm.model}.")

    async def do_compact(self, rest: str) -> None:
        """let the model summarize the conversation now, and go on from that"""
        if not await self.agent.compact():
            self.note("Nothing was summarized.")

    async def do_context(self, rest: str) -> None:
        """show what fills the context window, the tools, and what was used so far"""
        names = ", ".join(tool.name for tool in self.agent.toolset())
        self.terminal.say(f"{await self.meter()}\ntools: {names}\nso far: {self.usage()}")


def image_at(path: Path) -> Part | None:
    """Return the image in a file, or None if it is no image."""
    kind = guess_type(path.name)[0]
    if kind in IMAGE_TYPES and path.is_file():
        return ImagePart(data=path.read_bytes(), media_type=kind)
    return None


def is_cut_off(log: Sequence[Record]) -> bool:
    """Return True if the newest run failed, or was killed."""
    run = newest_run(log)
    ends = [record.stop_reason for record in run if isinstance(record, RunEnd)]
    return bool(run) and (not ends or ends[-1] in ("error", "cancelled"))


# ---- the sessions of a folder


def stem(folder: Path) -> str:
    """Return how the names of a folder's sessions begin: its name, and a hash of its path."""
    name = re.sub("[^A-Za-z0-9]+", "-", folder.name)[:20].strip("-") or "folder"
    return f"{name}-{sha256(str(folder).encode()).hexdigest()[:6]}"


def free_name(folder: Path) -> str:
    """Return a name for a new session of the folder."""
    names = (f"{stem(folder)}-{number}" for number in count(1))
    return next(name for name in names if not session_path(name).exists())


def sessions_of(folder: Path) -> list[SessionInfo]:
    """List the folder's sessions in which something was said, newest first."""
    start = stem(folder)
    return [each for each in sessions() if each.name.startswith(start) and each.title]


def described(session: SessionInfo) -> str:
    """Return a line for a list of sessions."""
    when = datetime.fromtimestamp(session.modified)
    return f"{session.name}  {when:%Y-%m-%d %H:%M}  {session.title}"
