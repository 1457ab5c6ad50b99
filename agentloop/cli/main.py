"""`agentloop`: its commands, what they take, and what it does without one: a chat, or one answer.

A command is a function, and its docstring is its help. There, a line with a gap of two spaces is an
option: its name, what it takes (a switch takes nothing), and what that is for.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeAlias

from .. import SessionLocked, __version__
from ..toolkits.skills import discover_skills
from . import bundle, demo, replay, view
from .agent import Chat, free_name, sessions_of
from .config import WAYS, choose, configured, load_tools
from .terminal import BOLD, DIM, RED, Log, Terminal, safe

Command: TypeAlias = Callable[[argparse.Namespace], int]

OPTION = re.compile(r"^(\S+) ?(\S*)  +(.*)", re.MULTILINE)
SEAMS = ["run", "context", "toolset", "call_model", "call_tools", "call_tool", "finish", "record"]
EPILOG = f"""\
the model is the first of these that there is, unless --provider says whose it is:
{WAYS}

what is piped in is the prompt, or is added to --prompt. Commands, writes and edits are then denied
(nobody can be asked), unless --yes or a rule allows them.

a chat is kept as a session of its folder, --prompt is not unless --session or --resume says so. The
tools of --tools are your own code: they run unasked.

~/.config/agentloop/config.toml may set provider, model, base_url, context_window, tools, mcp and
skills (beside it), and rules = [["allow", "bash", {{command = "git *"}}], ["deny", "write"]].

exit status: 0 answered (or left a chat), 1 the model failed or ended early, 2 wrong usage or no
model, 130 interrupted."""
NO_EXTRA = (
    "The chat needs prompt_toolkit and rich: pip install 'agentloop-micro[chat]'. "
    "(--prompt, demo, replay, view and bundle work without them.)"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program, and returns its exit status."""
    options = parser().parse_args(argv)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the encoding cannot carry
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads it
        return 1
    except (SessionLocked, ImportError, OSError, ValueError) as error:
        Terminal(sys.stderr).say(str(error), RED)
        return 2


def parser() -> argparse.ArgumentParser:
    """Reads the arguments as the docstrings of the commands say."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("agentloop", epilog=EPILOG, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"agentloop {__version__}")
    add_options(parser, chat)
    commands = parser.add_subparsers(metavar="COMMAND", title="other than a chat")
    others: dict[str, Command] = {
        "demo": demo.main,
        "bundle": bundle.main,
        "explain": explain,
        "replay": replay.main,
        "view": view.main,
    }
    for name, command in others.items():
        add_options(commands.add_parser(name, help=help_of(command)[0]), command)
    return parser


def help_of(command: Command) -> tuple[str, str, str]:
    """Its first line, and the others."""
    return (inspect.getdoc(command) or "").partition("\n")


def add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    """Makes a parser of a docstring. "PART..." takes any number, "a|b" one of these."""
    parser.description, _, options = help_of(command)
    parser.set_defaults(run=command)
    for name, takes, what in OPTION.findall(options):
        kind: dict[str, Any] = {"metavar": takes} if takes else {"action": "store_true"}
        if takes.endswith("..."):
            kind = {"metavar": takes[:-3], "nargs": "*", "action": "extend"}
        elif "|" in takes:
            kind = {"choices": takes.split("|")}
        parser.add_argument(name, help=what, **kind)


def chat(options: argparse.Namespace) -> int:
    """A chat with a coding agent that works in the current folder.

    --provider openai|anthropic|google  whose API to speak
    --model NAME      the model's name
    --base-url URL    of a server, such as http://localhost:11434/v1
    --session NAME    keep the conversation in ~/.agentloop/sessions/NAME.jsonl, or go on with it
    --resume          go on with a session of this folder
    --prompt TEXT     answer this, and exit
    --yes             allow all commands, writes and edits, unasked
    --tools FILE...   more tools: all at the top of FILE.py
    --mcp FILE        tools of the MCP servers in its {"mcpServers": {...}}
    --skills FOLDER   each folder in it that has a SKILL.md is a skill
    """
    prompt, name, here = options.prompt, options.session, Path.cwd()
    resume = options.resume and not name  # a session that is named goes on anyway
    if not sys.stdin.isatty():
        prompt = "\n\n".join(filter(str.strip, [prompt or "", sys.stdin.read()]))
    # The answer goes to stdout; all the rest too if that is a screen, else to stderr.
    on_screen = prompt is None or sys.stdout.isatty()
    terminal = Terminal(sys.stdout if on_screen else sys.stderr)
    logging.getLogger().addHandler(Log(terminal))
    logging.getLogger("agentloop").setLevel(logging.INFO)
    found = sessions_of(here) if resume else []
    if resume and not found:
        raise ValueError(f"No session of {here} is kept.")
    kind: Any = Chat
    if prompt is None:
        try:
            from .chat import Screen as kind
        except ImportError:
            raise ImportError(NO_EXTRA) from None
    config = configured(options)
    llm, where = choose(config)
    if resume:
        name = kind.pick(found) if prompt is None and found[1:] else found[0].name
    elif prompt is None:
        name = name or free_name(here)
    conversation = kind(
        llm,
        here,
        terminal,
        yes=options.yes,
        rules=config.rules,
        tools=[tool for where in config.tools for tool in load_tools(where)],
        window=config.context_window,
        session=name,
        skills=discover_skills(config.skills) if config.skills else (),
    )

    async def converse() -> Any:
        async with conversation.servers(config.mcp):
            return await (conversation.talk() if prompt is None else conversation.reply(prompt))

    with conversation:
        terminal.say(f"{llm.model} at {where}, in {here}", BOLD)
        conversation.shown.says = on_screen
        result = conversation.runner.run(converse())
        if not on_screen and result:
            print(safe(result.text), flush=True)
        how = "" if prompt else ". agentloop --resume goes on with it."
        terminal.say(f"({conversation.usage()}{how})", DIM)
    return 0 if prompt is None or (result and result.stop_reason in ("completed", "done")) else 1


def explain(options: argparse.Namespace) -> int:
    """Print which class of an agent handles what, and where it is.

    agent MODULE:CLASS  such as my_module:MyAgent
    """
    sys.path.insert(0, os.getcwd())
    try:
        agent: Any = resolve_name(options.agent)
    except AttributeError as error:
        raise ValueError(str(error)) from None
    classes: list[type] = [*getattr(agent, "__mro__", ())]
    methods = [vars(cls)[seam] for seam in SEAMS for cls in classes if seam in vars(cls)]
    if not methods:
        raise ValueError(f"{options.agent} is no agent: name one as my_module:MyAgent.")
    print("From left to right:", *(cls.__name__ for cls in classes))
    for method in methods:
        code = method.__code__
        print(f"{method.__qualname__:24}{code.co_filename}:{code.co_firstlineno}")
    return 0
