"""The program: options, standard input, exit status."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from agentloop import Result, SessionLocked
from agentloop.cli.terminal import BOLD, RED, Log, Terminal, print_json, safe
from agentloop.toolkits.skills import discover_skills
from agentloop.toolkits.web import web_fetch

from .coding_agent import reader
from .config import WAYS, choose, configured, load_tools
from .conversation import Chat
from .sessions import described, free_names, sessions_of

EPILOG = f"""\
the first variable that is set selects the provider; --provider overrides it:
{WAYS}

standard input is the prompt, or is appended to the prompt. Commands, writes
and edits are then denied unless --yes or a rule allows them, because no user is
present to approve them.

a chat is saved as a session of its directory. An answer to --prompt is saved if
--session, --continue or --resume selects a session. The tools of --tools are
your own code: they run without approval.

~/.config/agentloop/config.toml may set provider, model, base_url,
context_window, tools, mcp and skills (relative to its directory), web (hosts
to read pages from), sub_agent (the model of a read-only sub-agent), and
rules = [["allow", "bash", {{command = "git status*"}}], ["deny", "write"]].

exit status: 0 answered (or left a chat), 1 the model failed, 2 wrong usage or
no model, 3 the run ended before an answer (a limit, a refusal),
130 interrupted."""
NO_EXTRA = (
    "The chat requires prompt_toolkit and rich: pip install 'prompt_toolkit>=3.0.52,<4' 'rich>=13'. "
    "(--prompt, demo, replay, view and bundle work without them.)"
)


def chat(options: argparse.Namespace) -> int:
    """Chat with a coding agent that works in the current directory.

    message WORD...      the first message of the chat
    -p --prompt TEXT     answer this prompt and exit
    -c --continue        continue the newest session of the current directory
    --resume             select and continue a session of the current directory
    --session NAME       create or continue the session ~/.agentloop/sessions/NAME.jsonl
    -m --model NAME      name of the model
    --provider openai|anthropic|google  API of the model
    --base-url URL       address of a server, such as http://localhost:11434/v1
    --json               answer, and print every event as a line of JSON
    --yes                allow all commands, writes and edits without approval
    --tools FILE...      additional tools: every tool at the top level of FILE.py
    --mcp FILE           tools of the MCP servers in the file's {"mcpServers": {...}}
    --skills FOLDER      directory whose subdirectories with a SKILL.md are skills
    """
    here = Path.cwd()
    # The answer is written to stdout. Other output is written to stdout if it is a terminal,
    # otherwise to stderr.
    on_screen = sys.stdout.isatty() and not options.json
    is_typed = sys.stdin and sys.stdin.isatty()
    is_chat = is_typed and on_screen and options.prompt is None
    typed, prompt = read_prompt(options)
    terminal = Terminal(sys.stdout if on_screen else sys.stderr)
    logging.getLogger().addHandler(Log(terminal))
    logging.getLogger("agentloop").setLevel(logging.INFO)
    kind: Any = Chat
    if is_chat:
        try:
            from .screen import Screen as kind
        except ImportError:
            raise ImportError(NO_EXTRA) from None
    names: Iterable[str | None] = [options.session]
    if not options.session and (options.resume or vars(options)["continue"]):
        existing = sessions_of(here)
        if not existing:
            raise ValueError(f"No session of {here} found.")
        names = [session.name for session in existing]
        if is_chat and options.resume and existing[1:]:
            offered = [(session.name, safe(described(session))) for session in existing]
            names = [kind.pick("Which session?", options=offered)]
    is_unnamed = is_chat and names == [None]
    if is_unnamed:
        names = free_names(here)
    config = configured(options)
    llm, where = choose(config, kind.pick if is_chat else None)
    tools = [tool for file in config.tools for tool in load_tools(file)]
    if config.web:
        tools.append(web_fetch(config.web))
    if config.sub_agent:
        tools.append(reader(type(llm)(config.sub_agent, base_url=llm.base_url), here))
    start = partial(
        kind,
        llm,
        here,
        terminal,
        yes=options.yes,
        rules=config.rules,
        tools=tools,
        window=config.context_window,
        skills=discover_skills(config.skills) if config.skills else (),
    )
    try:
        conversation = start_first(names, start)
    except OSError as error:
        if not is_unnamed:
            raise
        terminal.say(f"(This chat is not saved: {error})", RED)
        conversation = start(session=None)

    async def converse() -> Result | None:
        async with AsyncExitStack() as resources:
            if config.mcp:
                start = conversation.start_servers(config.mcp, resources)
                conversation.starting = asyncio.ensure_future(start)
                await asyncio.wait([conversation.starting], timeout=0.1)
                if conversation.starting.done():
                    conversation.starting.result()  # raises the exception for an invalid file
            work = conversation.talk(typed) if is_chat else conversation.reply(prompt, typed)
            result: Result | None = await work
            return result

    with conversation:
        terminal.say(f"{llm.model} at {where}, in {here}", BOLD)
        conversation.printer.with_text = on_screen
        if options.json:
            conversation.printer = print_json
        result = conversation.runner.run(converse())
        if options.json and conversation.error:
            print(json.dumps({"type": "Error", "message": conversation.error}), flush=True)
        elif not on_screen and not options.json:
            print_answer(result.text if result else conversation.partial_answer())
        session = f". Continue: agentloop --session {conversation.agent.session}"
        how = session if is_chat and conversation.agent.session else ""
        conversation.note(f"{conversation.usage()}{how}")
    if is_chat:
        return 0
    if result is None:
        return 1
    return 0 if result.stop_reason in ("completed", "done") else 3


def start_first(names: Iterable[str | None], start: Callable[..., Any]) -> Any:
    """Start a conversation with the first session that is not open elsewhere.

    Raises SessionLocked if all sessions are open elsewhere.
    """
    locked = ""
    for name in names:
        try:
            return start(session=name)
        except SessionLocked:
            locked = locked or str(name)
    raise SessionLocked(f"session {locked} is open elsewhere: exit or /fork there")


def print_answer(text: str) -> None:
    """Print an answer to stdout, unless it is empty."""
    if text:
        print(safe(text), flush=True)


def read_prompt(options: argparse.Namespace) -> tuple[str, str]:
    """Return the text of the command line, and the prompt: this text with piped input."""
    texts = [options.prompt or "", " ".join(options.message)]
    typed = "\n\n".join(filter(str.strip, texts))
    if sys.stdin and not sys.stdin.isatty():  # None if the shell has closed stdin
        texts.append(sys.stdin.read())
        if "\0" in texts[-1]:
            raise ValueError("standard input is not text; @shot.png in a prompt attaches an image")
    return typed, "\n\n".join(filter(str.strip, texts))
