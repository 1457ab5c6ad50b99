"""`agentloop`: commands and their options. Without a command, it starts a chat or answers a prompt.

A command is a function, and its docstring is the help text. In the docstring, a line with a gap of
two spaces defines an option: its names, its value (omitted for a switch), and its description.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeAlias

from .. import Result, SessionLocked, __version__
from ..toolkits.skills import discover_skills
from . import bundle, demo, replay, view
from .agent import Chat
from .config import WAYS, choose, configured, load_tools
from .kept import described, free_name, sessions_of
from .terminal import BOLD, RED, Log, Terminal, print_json, safe

Command: TypeAlias = Callable[[argparse.Namespace], int]

OPTION = re.compile(r"^((?:-\S )?-\S+|\w+) ?(\S*)  +(.*)", re.MULTILINE)
EPILOG = f"""\
the first variable that is set selects the provider; --provider overrides it:
{WAYS}

standard input is the prompt, or is appended to the prompt. Commands, writes
and edits are then denied unless --yes or a rule allows them, because nobody can
approve them.

a chat is saved as a session of its directory. An answer to --prompt is saved if
--session, --continue or --resume selects a session. The tools of --tools are
your own code: they run without approval.

~/.config/agentloop/config.toml may set provider, model, base_url,
context_window, tools, mcp and skills (relative to its directory), and
rules = [["allow", "bash", {{command = "git status*"}}], ["deny", "write"]].

exit status: 0 answered (or left a chat), 1 the model failed, 2 wrong usage or
no model, 3 the run ended before an answer (a limit, a refusal),
130 interrupted."""
NO_EXTRA = (
    "The chat requires prompt_toolkit and rich: pip install 'agentloop-micro[chat]'. "
    "(--prompt, demo, replay, view and bundle work without them.)"
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the program with the given or the command line's arguments; return the exit status."""
    if words is None:
        words = sys.argv[1:]
    name = words[0] if words and words[0] in COMMANDS else ""
    command = COMMANDS.get(name, chat)
    options = parser(name, command).parse_args(words[1:] if name else words)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters outside of the encoding
    try:
        return command(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # the reader has closed the pipe
        return 1
    except (SessionLocked, ImportError, OSError, ValueError) as error:
        Terminal(sys.stderr).say(re.sub(r"^\[Errno \d+\] ", "", str(error)), RED)
        return 2


def parser(name: str, command: Command) -> argparse.ArgumentParser:
    """Return a parser for a command, based on its docstring. The name of the chat is empty.

    In the docstring, "PART..." means any number of values, and "a|b" a choice of values.
    """
    description, _, options = help_of(command)
    raw = argparse.RawDescriptionHelpFormatter
    program = f"agentloop {name}".strip()
    parser = argparse.ArgumentParser(program, description=description, formatter_class=raw)
    if not name:
        others = [f"  {other:8} {help_of(COMMANDS[other])[0]}" for other in COMMANDS]
        parser.epilog = "\n".join(["other commands:", *others, "", EPILOG])
        parser.add_argument("--version", action="version", version=f"agentloop {__version__}")
    for names, value, what in OPTION.findall(options):
        kind: dict[str, Any] = {"metavar": value} if value else {"action": "store_true"}
        if value.endswith("..."):
            kind = {"metavar": value[:-3], "nargs": "*", "action": "extend"}
        elif "|" in value:
            kind = {"choices": value.split("|")}
        parser.add_argument(*names.split(), help=what, **kind)
    return parser


def help_of(command: Command) -> tuple[str, str, str]:
    """Split the docstring of a command into the first line, a line break, and the options."""
    return (inspect.getdoc(command) or "").partition("\n")


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
    # The answer goes to stdout. Other output goes to stdout if it is a terminal, else to stderr.
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
            from .chat import Screen as kind
        except ImportError:
            raise ImportError(NO_EXTRA) from None
    name = options.session
    if not name and (options.resume or vars(options)["continue"]):
        found = sessions_of(here)
        if not found:
            raise ValueError(f"No session of {here} found.")
        name = found[0].name
        if is_chat and options.resume and found[1:]:
            offered = [(each.name, described(each)) for each in found]
            name = kind.pick("Which session?", options=offered)
    if is_chat:
        name = name or free_name(here)
    config = configured(options)
    llm, where = choose(config, kind.pick if is_chat else None)
    conversation = kind(
        llm,
        here,
        terminal,
        yes=options.yes,
        rules=config.rules,
        tools=[tool for file in config.tools for tool in load_tools(file)],
        window=config.context_window,
        session=name,
        skills=discover_skills(config.skills) if config.skills else (),
    )

    async def converse() -> Result | None:
        async with AsyncExitStack() as opened:
            if config.mcp:
                start = conversation.start_servers(config.mcp, opened)
                conversation.starting = asyncio.ensure_future(start)
                await asyncio.wait([conversation.starting], timeout=0.1)
                if conversation.starting.done():
                    conversation.starting.result()  # raises an error for an invalid file
            work = conversation.talk(typed) if is_chat else conversation.reply(prompt, typed)
            result: Result | None = await work
            return result

    with conversation:
        terminal.say(f"{llm.model} at {where}, in {here}", BOLD)
        conversation.shown.says = on_screen
        if options.json:
            conversation.shown = print_json
        result = conversation.runner.run(converse())
        if result and not on_screen and not options.json:
            print(safe(result.text), flush=True)
        how = f". Continue: agentloop --session {conversation.agent.session}" if is_chat else ""
        conversation.note(f"{conversation.usage()}{how}")
    if is_chat:
        return 0
    if result is None:
        return 1
    return 0 if result.stop_reason in ("completed", "done") else 3


def read_prompt(options: argparse.Namespace) -> tuple[str, str]:
    """Return the text that the user typed on the command line, and that text with piped input."""
    texts = [options.prompt or "", " ".join(options.message)]
    typed = "\n\n".join(filter(str.strip, texts))
    if sys.stdin and not sys.stdin.isatty():  # a shell may have closed it
        texts.append(sys.stdin.read())
    return typed, "\n\n".join(filter(str.strip, texts))


COMMANDS: dict[str, Command] = {
    "demo": demo.main,
    "bundle": bundle.main,
    "replay": replay.main,
    "view": view.main,
}
