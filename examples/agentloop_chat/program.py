"""The program: options, standard input, exit status."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from agentloop import Result, SessionLocked, TextEvent, Tool, events
from agentloop.cli.terminal import BOLD, DIM, RED, Terminal, plain, safe
from agentloop.models.http import HTTPModel
from agentloop.toolkits.skills import discover_skills

from .coding_agent import reader
from .config import WAYS, Config, Pick, choose, configured, load_tools
from .conversation import Chat, Setup
from .sessions import described, free_names, sessions_of
from .web_fetch import web_fetch

EPILOG = f"""\
the first variable that is set selects the provider; --provider overrides it:
{WAYS}

standard input is the prompt, or is appended to the prompt. Commands, writes
and edits are then denied unless --yes or a rule allows them, because no user is
present to approve them.

a chat is saved as a session of the current directory. An answer to --prompt is
saved if --session, --continue or --resume selects a session. The tools of
--tools are your own code: they run without approval.

~/.config/agentloop/config.toml may set provider, model, base_url,
context_window, tools, mcp and skills (paths relative to this file), web (hosts
to read pages from), sub_agent (the model of a read-only sub-agent), pass_env =
["DATABASE_URL", "AWS_*"] (variables that commands of the agent get although
they look like secrets), screen_reader = true, bell = false, and rules =
[["allow", "bash", {{command = "git status*"}}], ["deny", "write"]].

exit status: 0 answered (or left a chat), 1 the model failed, 2 wrong usage or
no model, 3 the run ended before an answer (a limit, a refusal),
130 interrupted."""
NO_EXTRA = (
    "The chat requires prompt_toolkit and rich: pip install 'prompt_toolkit>=3.0.53,<4' 'rich>=14.3'. "
    "(--prompt, demo, replay, view and bundle work without them.)"
)


HELP = "Chat with a coding agent that works in the current directory."


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    switch = partial(add, action="store_true")
    session = "create or continue the session ~/.agentloop/sessions/NAME.jsonl"
    tools = "additional tools: every tool at the top level of FILE.py"
    servers = 'tools of the MCP servers in the file\'s {"mcpServers": {...}}'
    skills = "directory whose subdirectories with a SKILL.md are skills"
    add("message", metavar="WORD", nargs="*", help="the first message of the chat")
    add("-p", "--prompt", metavar="TEXT", help="answer this prompt and exit")
    switch("-c", "--continue", help="continue the newest session of the current directory")
    switch("--resume", help="select and continue a session of the current directory")
    add("--session", metavar="NAME", help=session)
    add("-m", "--model", metavar="NAME", help="name of the model")
    add("--provider", choices=["openai", "anthropic", "google"], help="API of the model")
    add("--base-url", metavar="URL", help="address of a server: http://localhost:11434/v1")
    switch("--json", help="answer, exit, and print every event as a line of JSON")
    switch("--yes", help="allow all commands, writes and edits without approval")
    add("--tools", metavar="FILE", nargs="*", action="extend", help=tools)
    add("--mcp", metavar="FILE", help=servers)
    switch("--screen-reader", help="print plain lines in reading order")
    add("--skills", metavar="FOLDER", help=skills)


def main(options: argparse.Namespace) -> int:
    config = configured(options)
    if config.screen_reader:
        os.environ["TERM"] = "dumb"
    # The answer is written to stdout. Other output is written to stdout if it is a terminal,
    # otherwise to stderr.
    on_screen = sys.stdout.isatty() and not options.json
    is_typed = bool(sys.stdin and sys.stdin.isatty())
    is_chat = is_typed and on_screen and options.prompt is None
    typed, prompt = read_prompt(options)
    terminal = Terminal(sys.stdout if on_screen else sys.stderr)
    logging.getLogger().addHandler(Log(terminal))
    logging.getLogger("agentloop").setLevel(logging.INFO)
    with open_conversation(options, config, terminal, is_chat) as conversation:
        failures = list[OSError]()  # of writing JSON to stdout
        if options.json:
            conversation.printer = partial(print_json, failures)
        elif not on_screen:
            conversation.printer = partial(print_steps, terminal)
        work = partial(conversation.talk, prompt, typed)
        result = conversation.runner.run(with_servers(conversation, config.mcp, work))
        if failures:
            raise failures[0]
        if options.json:
            print_error(conversation.error)
        elif not on_screen:
            print_answer(result.text if result else conversation.partial_answer())
        conversation.note(farewell(conversation, is_chat))
    return 0 if is_chat else exit_status(result)


def open_conversation(
    options: argparse.Namespace, config: Config, terminal: Terminal, is_chat: bool
) -> Chat:
    """Start or continue a conversation with the configured model, and say where it works."""
    here = Path.cwd()
    kind = load_screen() if is_chat else Chat
    names = session_names(options, here, kind.pick)
    llm, where = choose(config, kind.pick)
    setup = Setup(
        llm=llm,
        root=here,
        terminal=terminal,
        yes=options.yes,
        config=config,
        tools=tools_of(config, llm, here),
        skills=discover_skills(config.skills) if config.skills else (),
    )

    def start(session: str | None) -> Chat:
        return kind(replace(setup, session=session))

    if is_chat and names == [None]:
        conversation = start_unnamed(start, here, terminal)
    else:
        conversation = start_first(names, start)
    terminal.say(f"{llm.model} at {where}, in {here}", BOLD)
    if withheld := conversation.shell.withheld:
        names = ", ".join(withheld)
        conversation.note(
            f"Commands of the agent don't get {names}. pass_env in config.toml passes them."
        )
    return conversation


def farewell(conversation: Chat, is_chat: bool) -> str:
    """What a conversation cost, and the command that continues a chat."""
    text = conversation.usage()
    if is_chat and conversation.agent.session:
        text += f". Continue: agentloop --session {conversation.agent.session}"
    return text


class Log(logging.Handler):
    """A logging handler that prints warnings, and retries of model requests."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self.terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        if record.module == "http" or record.levelno >= logging.WARNING:
            self.terminal.say(f"({plain(record.getMessage())})", DIM)


def print_json(failures: list[OSError], event: events.Event) -> None:
    """Print an event as a JSON object in one line: the class name as "type", and the fields.

    failures: gets the reason if it can't be printed. The run goes on.
    """
    fields = {"type": type(event).__name__} | asdict(event)
    try:
        print(json.dumps(fields, default=str), flush=True)
    except OSError as error:
        failures.append(error)


def print_steps(terminal: Terminal, event: events.Event) -> None:
    """Print calls and results, but not the text of the model, which is written to stdout."""
    if not isinstance(event, TextEvent):
        terminal.show(event)


def load_screen() -> type[Chat]:
    """Import the class of a chat in a terminal, which needs the extra `chat`."""
    try:
        from .screen import Screen
    except ImportError:
        raise ImportError(NO_EXTRA) from None
    return Screen


def session_names(
    options: argparse.Namespace, here: Path, pick: Pick | None
) -> Sequence[str | None]:
    """The names of the sessions to try, in order; None stands for no name.

    pick: asks the user; None if there's nobody to ask.
    """
    if options.session or not (options.resume or vars(options)["continue"]):
        return [options.session]
    existing = sessions_of(here)
    if not existing:
        raise ValueError(f"No session of {here} found.")
    if pick and options.resume and existing[1:]:
        offered = [(session.name, safe(described(session))) for session in existing]
        return [pick("Which session?", options=offered)]
    return [session.name for session in existing]


def tools_of(config: Config, llm: HTTPModel, here: Path) -> list[Tool]:
    """The tools that the configuration adds."""
    tools = [tool for file in config.tools for tool in load_tools(file)]
    if config.web:
        tools.append(web_fetch(config.web))
    if config.sub_agent:
        tools.append(reader(type(llm)(config.sub_agent, base_url=llm.base_url), here))
    return tools


def start_unnamed(start: Callable[[str | None], Chat], here: Path, terminal: Terminal) -> Chat:
    """Start a chat with a new session, or with none if no file can be written."""
    try:
        return start_first(free_names(here), start)
    except OSError as error:
        terminal.say(f"(This chat is not saved: {error})", RED)
        return start(None)


def start_first(names: Iterable[str | None], start: Callable[[str | None], Chat]) -> Chat:
    """Start a conversation with the first session that isn't open elsewhere.

    Raises SessionLocked if all of them are.
    """
    locked = ""
    for name in names:
        try:
            return start(name)
        except SessionLocked:
            locked = locked or str(name)
    raise SessionLocked(f"session {locked} is open elsewhere: exit or /fork there")


async def with_servers(
    conversation: Chat, mcp: str | None, work: Callable[[], Awaitable[Result | None]]
) -> Result | None:
    """Start the MCP servers of a file, do the work, and stop the servers."""
    async with AsyncExitStack() as resources:
        if mcp:
            start = conversation.start_servers(mcp, resources)
            conversation.starting = asyncio.ensure_future(start)
            await asyncio.wait([conversation.starting], timeout=0.1)
            if conversation.starting.done():
                conversation.starting.result()  # raises the exception for an invalid file
        return await work()


def exit_status(result: Result | None) -> int:
    """The exit status for the result of a run, which is None if the model failed."""
    if result is None:
        return 1
    return 0 if result.stop_reason in ("completed", "done") else 3


def print_error(error: str) -> None:
    """Print the error of a model as a line of JSON, unless it's empty."""
    if error:
        print(json.dumps({"type": "Error", "message": error}), flush=True)


def print_answer(text: str) -> None:
    """Print an answer to stdout, unless it's empty."""
    if text:
        print(safe(text), flush=True)


def read_prompt(options: argparse.Namespace) -> tuple[str, str]:
    """Read the text of the command line, and the prompt: this text, then piped input."""
    texts = [options.prompt or "", " ".join(options.message)]
    typed = "\n\n".join(filter(str.strip, texts))
    if sys.stdin and not sys.stdin.isatty():  # None if the shell has closed stdin
        texts.append(sys.stdin.read())
        if "\0" in texts[-1]:
            raise ValueError("standard input is not text; @shot.png in a prompt attaches an image")
    return typed, "\n\n".join(filter(str.strip, texts))
