"""A conversation with the coding agent, and its slash commands."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Self

from agentloop import (
    AssistantMessage,
    CompactionConfig,
    Fork,
    ModelError,
    Part,
    Record,
    Request,
    Result,
    Review,
    ScriptedModel,
    SideRequest,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
    context_window,
    events,
    message_tokens,
    newest_prompt_index,
    session_path,
    tool_tokens,
    view,
)
from agentloop.cli.main import main as command
from agentloop.cli.terminal import BOLD, DIM, RED, Terminal, arguments_of, plain
from agentloop.common.subagents import SubAgentCall
from agentloop.common.windows import UNKNOWN_WINDOW
from agentloop.mixins.approval import Rule
from agentloop.mixins.session import SessionInfo
from agentloop.models.http import HTTPModel
from agentloop.settings import settings_of
from agentloop.toolkits.ask import answer_text
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.mcp import mcp_servers
from agentloop.toolkits.shell import MAX_TIMEOUT, Shell
from agentloop.toolkits.skills import Skill

from .coding_agent import CodingAgent
from .config import Config, Pick, config_folder
from .mcp_questions import AskingTool
from .memory import memory_files
from .prompt_input import is_prompt, typed, with_files
from .sessions import described, free_names, is_cut_off, sessions_of, stem
from .standing_approvals import EDITS, for_each_command

SYSTEM_PROMPT = (
    "You are a coding agent in a terminal, and work in the user's current directory. Look at "
    "existing files before you change them, change no more than the task requires, and run the "
    "tests if there are any. Report briefly what you did and found. In a message, @path mentions a "
    "file, whose content follows."
)
STOPPED = {  # advice by the stop reason of a run that ended early
    "context_overflow": "the conversation is too long for the model (/undo removes your message)",
    "limit:length": "the answer reached the model's output limit: ask it to continue",
}
# A repository may contain a directory that git recognizes as a bare repository, with programs in
# its configuration. Without this setting, `git status` in the directory would start the programs.
SAFE_GIT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
MAX_LISTED = 20  # sessions in a list
NOBODY = "Denied: no user is present to approve this call. --yes allows all calls."


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How a conversation starts.

    root: the working directory.
    yes: whether calls run without approval.
    tools: more tools, which run without approval.
    session: the name of the session; None for a conversation that isn't saved.
    """

    llm: HTTPModel | ScriptedModel
    root: Path
    terminal: Terminal
    yes: bool = False
    config: Config = field(default_factory=Config)
    tools: Sequence[Tool] = ()
    skills: Sequence[Skill] = ()
    session: str | None = None


class Chat:
    """A conversation, and a context manager that owns an event loop.

    A method `do_x` implements the command /x, and its docstring is the help text. Its parameter, if
    it has one, is the text after the command.
    """

    pick: Pick | None = None  # asks the user to select an option; None if there's no user

    def __init__(self, setup: Setup) -> None:
        self.terminal, self.root, self.config = setup.terminal, setup.root, setup.config
        self.workspace = Workspace(self.root)
        self.shell = Shell(self.root, env=SAFE_GIT, pass_env=self.config.pass_env)
        self.own_shell = Shell(self.root, pass_env=["*"])  # for the user's !COMMAND
        rules = [Rule("allow", tool.name) for tool in setup.tools]
        self.rules = [*map(for_each_command, self.config.rules), *rules]
        self.runner = asyncio.Runner()
        self.printer: Callable[[events.Event], None] = self.terminal.show
        self.error = ""  # the error of the last request, if the model failed
        self.doubtful = set[str]()  # @paths that somebody else may have written
        self.starting: asyncio.Future[None] | None = None  # MCP servers; prompts wait for them
        place = (
            f"Date: {datetime.now().date()}. Working directory: {self.root}. "
            f"Operating system: {platform.system()}."
        )
        self.agent = CodingAgent(
            llm=setup.llm,
            tools=[*self.workspace.tools, *self.shell.tools, *setup.tools],
            system_prompt=f"{SYSTEM_PROMPT}\n\n{place}",
            approval_mode="auto" if setup.yes else "ask",
            approval_rules=self.rules,
            approval_callback=self.ask,
            approval_timeout=86_400.0,  # a day
            instruction_files=memory_files(self.root, config_folder(), self.warn),
            workspace=self.workspace,
            listeners=[self.show],
            skills=setup.skills,
            session=setup.session,
        )
        self.set_window()

    def set_window(self) -> None:
        """Learn the size of the model's context window in tokens."""
        known = self.config.context_window or context_window(self.agent.llm.model)
        self.window = known or UNKNOWN_WINDOW
        self.agent.compaction = CompactionConfig(context_window=self.window)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.agent.close()
        self.shell.close()
        self.runner.close()

    async def start_servers(self, path: str, resources: AsyncExitStack) -> None:
        """Start the MCP servers of a file, and say which don't start."""
        self.note("Starting the MCP servers ...")
        servers = await resources.enter_async_context(mcp_servers(path, tool_class=AskingTool))
        self.agent.mcp_servers = servers
        for server in servers:
            if server.error:
                self.terminal.say(str(server.error), RED)
            else:
                self.note(f"MCP server {server.name} started, tools: {len(server.tools)}")

    async def greet(self) -> None:
        """Print the name of the session, its last exchange, and its open calls."""
        name, messages = self.agent.session or "not saved", self.agent.messages
        self.note(f"Session {name}: {len(messages)} messages. Ctrl-D exits, /help lists commands.")
        for message in messages[newest_prompt_index(messages) :]:
            if is_prompt(message):
                lines = typed(message).splitlines()
                self.terminal.say("\n> " + "\n".join(lines[:10]), BOLD)
            elif isinstance(message, AssistantMessage):
                self.show(events.TextEvent(message.text))
        for state in self.agent.conversation.open_calls:
            if state.start:
                self.note(f"Interrupted call with unknown outcome: {described_call(state.call)}")
        self.show_question()

    def tell_interrupted(self) -> None:
        """Tell the user that Enter continues an interrupted run, and with which calls."""
        if is_cut_off(self.agent):
            waiting = [
                state.call for state in self.agent.conversation.open_calls if state.may_start
            ]
            calls = " with " * bool(waiting) + "; ".join(map(described_call, waiting))
            self.note(f"The run was interrupted. Press Enter to continue{calls}.")

    def note(self, text: str) -> None:
        """Print a note from the program."""
        self.terminal.say(f"({text})", DIM)

    def warn(self, text: str) -> None:
        """Print a note about something that doesn't work."""
        self.terminal.say(f"({text})", RED)

    def owner_of(self, call: ToolCall) -> str:
        """The name of the sub-agent that makes a call; "" if the agent makes it itself."""
        for state in self.agent.conversation.states.values():
            made = state.call
            if (
                isinstance(made, SubAgentCall)
                and state.may_start
                and call.id in (made.id, made.own.id)
            ):
                return made.agent
        return ""

    async def ask(self, call: ToolCall, reason: str) -> bool | str | Review:
        """Deny a call, because there's nobody to ask."""
        self.note(NOBODY)
        return False

    async def confirm(self, path: str) -> bool:
        """Refuse to attach a file outside the directory, because there's nobody to ask."""
        raise ValueError(
            f"{path} is outside {self.root}, and no user is present to confirm the attachment. "
            f"Start agentloop in its directory, or pipe the file: agentloop -p ... < {quote(path)}"
        )

    def show(self, event: events.Event) -> None:
        """Show an event."""
        self.printer(event)

    async def talk(self, prompt: str, typed: str) -> Result | None:
        """Answer a prompt. In a terminal, the chat then goes on."""
        return await self.reply(prompt, typed)

    async def reply(self, prompt: str | None, typed: str = "") -> Result | None:
        """Answer a prompt, and show the answer piece by piece. None continues an interrupted run.

        typed: the part of the prompt that the user typed, whose @paths attach files.

        If the model or an MCP server has asked a question, the prompt is the answer. Returns None
        if the model failed. Raises OSError if the session can't be saved.
        """
        question = self.question
        if prompt and question:
            self.agent.answer(question.id, answer_text(question.parsed or {}, prompt))
            prompt = None
        if self.starting:
            await asyncio.shield(self.starting)
        message: str | Sequence[Part] | None = prompt
        if prompt:
            message = await with_files(
                prompt, typed, self.root, self.note, self.confirm, self.doubtful
            )
        try:
            result = await self.agent.run(message)
        except ModelError as error:
            self.error = f"{self.agent.llm.model} failed: {plain(error)}"
            self.terminal.say(self.error, RED)
            return None
        self.report(result)
        return result

    def report(self, result: Result) -> None:
        """Show the first open question, or why a run ended before it had an answer."""
        self.show_question()
        if result.stop_reason not in ("completed", "done", "needs_answer"):
            self.note(f"Stopped: {STOPPED.get(result.stop_reason, result.stop_reason)}.")

    @property
    def question(self) -> ToolCall | None:
        """The first call that awaits the user's answer: of the model, an MCP server or a tool."""
        for call in self.agent.pending:
            if self.agent.conversation.state_of(call).status == "awaiting_answer":
                return call
        return None

    def show_question(self) -> None:
        """Show the first open question. The next one comes after the answer."""
        call = self.question
        if call and call.name != "ask_user":  # a question of the model is displayed as a call
            self.show(events.ToolCallEvent("ask_user", call.parsed or {}, call.id))

    async def run_command(self, command: str) -> None:
        """Run a command of the user, and add its output to the conversation."""
        self.show(events.ToolCallEvent("!", {"command": command}, "!"))
        result = "The user interrupted the command."
        try:
            result = await self.own_shell.bash(command, MAX_TIMEOUT)
        except ToolError as error:
            result = str(error)
        finally:
            self.agent.add_note(f"The user ran this command: {command}\n\n{result}")
        self.show(events.ToolResultEvent("!", result, "!"))

    def partial_answer(self) -> str:
        """The text of an answer that an error interrupted; "" if there's none."""
        messages = self.agent.messages
        for message in messages[newest_prompt_index(messages) :]:
            if isinstance(message, AssistantMessage) and message.stop_reason == "interrupted":
                return message.text
        return ""

    def usage(self) -> str:
        """Describe the tokens and the cost of the conversation."""
        bill = self.agent.bill
        cost = f", ${bill.cost:.4f}" if bill.cost else ""
        return f"{bill.usage.input_tokens:,} tokens in, {bill.usage.output_tokens:,} out{cost}"

    async def meter(self) -> str:
        """How much of the context window the next request takes, as compaction measures it."""
        request = Request(await self.agent.context(), self.agent.toolset())
        return f"context {self.agent.request_tokens(request):,} of {self.window:,}"

    async def use_session(self, name: str | None) -> None:
        """Close this session, and continue the one with this name.

        None starts a conversation that isn't saved.
        """
        settings = settings_of(self.agent)
        settings["session"] = name
        agent = CodingAgent(**settings)
        self.agent.close()
        self.agent = agent
        self.shell.cwd = self.root  # as the system prompt says
        self.workspace.seen.clear()
        await self.greet()

    def take_back(self) -> str:
        """Take back the newest prompt and everything after it. Returns the prompt.

        The cost stays on the bill. A note lists the files that the agent has changed since the
        prompt. Raises ValueError if there's no prompt.
        """
        log, before = [*self.agent.log], self.agent.conversation
        at = newest_prompt_index(log)
        if at == len(log):
            raise ValueError("The conversation contains no message to remove.")
        files = ", ".join(self.changed_files(log[at:])) or "none"
        self.agent.load_history(view(log[:at]))
        self.agent.record(Fork())  # the following records represent all previous requests
        for request in before.requests:
            self.agent.record(SideRequest(usage=request.usage, model=request.model))
        self.workspace.seen.clear()
        self.note(f"Removed. Changed files are not restored: {files}.")
        return next(typed(record) for record in log[at:] if is_prompt(record))

    def changed_files(self, records: Sequence[Record]) -> list[str]:
        """The paths that calls in these records have changed, if they succeeded."""
        paths = list[str]()
        for record in records:
            if isinstance(record, ToolMessage) and not record.is_error:
                call = self.agent.conversation.states[record.tool_call_id].call
                if call.name in EDITS:
                    paths.append(str((call.parsed or {}).get("path")))
        return [*dict.fromkeys(paths)]  # without duplicates

    # ---- commands

    async def do_new(self) -> None:
        """start a new session"""
        await self.use_session(self.agent.session and next(free_names(self.root)))

    async def do_resume(self, rest: str) -> None:
        """continue the session NAME; a unique prefix suffices, Tab completes"""
        matches = self.other_sessions(rest)
        if rest and len(matches) == 1:
            await self.use_session(matches[0].name)
        else:
            if rest and not matches:
                self.note(f"No other session has a name that starts with {rest}.")
            lines = [*map(described, matches or self.other_sessions())] or ["none"]
            if len(lines) > MAX_LISTED:
                lines[MAX_LISTED:] = [f"... {len(lines) - MAX_LISTED} older ones"]
            self.terminal.say("\n".join(["Other sessions:", *lines]))

    def other_sessions(self, name: str = "") -> list[SessionInfo]:
        """The session with this name, or else those whose names begin with it."""
        names = name, f"{stem(self.root)}-{name}"
        others = [info for info in sessions_of(self.root) if info.name != self.agent.session]
        exact = [info for info in others if info.name in names]
        return exact or [info for info in others if info.name.startswith(names)]

    async def do_fork(self, rest: str) -> None:
        """continue in a copy (named NAME); this session remains unchanged"""
        before = self.agent
        name = f"{stem(self.root)}-{rest}" if rest else next(free_names(self.root))
        try:
            self.agent = before.fork(session=name)
        except FileExistsError:
            raise ValueError(
                f"The session {name} already exists: /resume {rest} continues it."
            ) from None
        before.close()
        self.note(f"This is {name} now; {before.session} remains unchanged.")

    async def do_model(self, rest: str) -> None:
        """switch to the model NAME of the same provider"""
        old = self.agent.llm
        if rest and isinstance(old, HTTPModel):
            self.agent.llm = type(old)(rest, base_url=old.base_url)
            self.set_window()
        self.note(f"Model: {self.agent.llm.model}.")

    async def do_compact(self) -> None:
        """summarize the conversation now, and continue from the summary"""
        self.note("The model writes a summary ...")
        if not await self.agent.compact():
            self.note("No summary was written.")

    async def do_export(self, rest: str) -> None:
        """write this session as a page FILE.html for the browser, or as a picture FILE.svg"""
        if not self.agent.session:
            raise ValueError("This conversation is not saved.")
        page = Path(rest or f"{self.agent.session}.html").expanduser()
        command(["view", str(session_path(self.agent.session)), f"-o{page}"])

    async def do_context(self) -> None:
        """show the use of the context window, the tools, and the cost so far"""
        context, tools = await self.agent.context(), self.agent.toolset()
        start = len(context) - len(self.agent.messages)
        system, messages = message_tokens(context[:start]), message_tokens(context[start:])
        parts = f"about {system:,} system, {tool_tokens(tools):,} tools, {messages:,} messages"
        names = ", ".join(tool.name for tool in tools if not tool.deferred)
        self.terminal.say(f"{await self.meter()}: {parts}\ntools: {names}\nso far: {self.usage()}")


def described_call(call: ToolCall) -> str:
    """A call, in one line."""
    return f"{call.name} {arguments_of(call.parsed or {})}"
