"""`agentloop`: its arguments, and what it does with them."""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from .. import SessionLocked, __version__
from ..events import Event
from ..messages import Result
from ..models.replay import dump_to
from ..toolkits.skills import discover_skills
from . import bundle, demo, replay, view
from .agent import Chat, described, free_name, sessions_of
from .config import DEFAULT_MODELS, PORTS, WAYS, choose, configured, load_tools
from .terminal import BOLD, DIM, RED, Log, Terminal, json_line, reason, safe

SEAMS = ["run", "context", "toolset", "call_model", "call_tools", "call_tool", "finish", "record"]
EPILOG = f"""\
the model is the first of these that there is, unless --provider says whose it is:
{WAYS}

what is piped in is the prompt, or is added to --prompt. Commands, writes and edits are then denied
(nobody can be asked), unless --yes or a rule allows them.

a chat is kept as a session of its folder, --prompt is not unless --session or --resume says so. The
tools of --tools are your own code: they run unasked. With --json, stdout has nothing but events.

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
        status: int = options.run(options)
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads it
        return 1
    except (SessionLocked, OSError, ValueError) as error:
        Terminal(sys.stderr).say(reason(error), RED)
        return 2
    except Exception:
        print(safe(traceback.format_exc()), file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentloop",
        description="A chat with a coding agent that works in the current folder.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add: Callable[..., object] = parser.add_argument
    add("--provider", choices=DEFAULT_MODELS, help="whose API to speak")
    add("--model", help="the model's name")
    add("--base-url", metavar="URL", help="of a server, such as http://localhost:11434/v1")
    kept = "~/.agentloop/sessions/NAME.jsonl, the same from any folder, and go on with it next time"
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--session", metavar="NAME", help=f"keep the conversation in {kept}")
    one.add_argument("--resume", action="store_true", help="go on with a session of this folder")
    one.add_argument("--list", action="store_true", help="list the sessions of this folder")
    add("--prompt", metavar="TEXT", help="answer this, and exit")
    add("--json", action="store_true", help="with a prompt: print each event as a line of JSON")
    add("--yes", action="store_true", help="allow all commands, writes and edits, unasked")
    what = "more tools: all at the top of FILE.py, or MODULE:NAME; may be given again"
    add("--tools", metavar="FILE", action="append", default=[], help=what)
    add("--dump", metavar="FOLDER", help="write each request's and answer's body there, keyless")
    add("--version", action="version", version=f"agentloop {__version__}")
    add("--ports", help=argparse.SUPPRESS, type=json.loads, default=PORTS)  # for tests
    add("--mcp", metavar="FILE", help='tools of the MCP servers in its {"mcpServers": {...}}')
    add("--skills", metavar="FOLDER", help="each folder in it that has a SKILL.md is a skill")
    parser.set_defaults(run=chat)
    commands = parser.add_subparsers(metavar="COMMAND", title="other than a chat")

    def command(name: str, run: Callable[..., int], what: str) -> Callable[..., object]:
        each = commands.add_parser(name, help=what, description=f"{name.title()}: {what}.")
        each.set_defaults(run=run)
        return each.add_argument

    add = command("demo", demo.run, "an agent mends a project; its model is a script")
    add("--kill", action="store_true", help="kill it as it pays a pretend bill; that is paid once")
    what = "write the core and the parts of your choice as one file that is yours"
    bundle.add_options(command("bundle", bundle.run, what))
    add = command("explain", explain, "print which class of an agent handles what, and where it is")
    add("agent", metavar="MODULE:CLASS", help="such as my_module:MyAgent")
    what = "show a session turn by turn, write it as a test, or fork it at a turn"
    replay.add_options(command("replay", replay.run, what))
    view.add_options(command("view", view.run, "write a page to look into a session with"))
    return parser


def chat(options: argparse.Namespace) -> int:
    """A conversation, or one answer if there is a prompt already."""
    prompt, name, here = options.prompt, options.session, Path.cwd()
    if not (options.list or (sys.stdin and sys.stdin.isatty())):
        piped = sys.stdin.read() if sys.stdin else ""
        prompt = "\n\n".join(filter(str.strip, [prompt or "", piped]))
    # The answer goes to stdout; all the rest too if that is a screen, else to stderr.
    on_screen = (sys.stdout.isatty() or prompt is None) and not options.json
    terminal = Terminal(sys.stdout if on_screen else sys.stderr)
    logging.getLogger().addHandler(Log(terminal))
    logging.getLogger("agentloop").setLevel(logging.INFO)
    found = sessions_of(here) if options.list or options.resume else []
    if options.list or (options.resume and not found):
        terminal.say("\n".join(map(described, found)) or f"(No session of {here} is kept.)")
        return 0 if options.list else 2
    kind: Any = JSONLines if options.json else Chat
    if prompt is None:
        if options.json:
            raise ValueError("--json needs --prompt, or a prompt that is piped in.")
        if not (find_spec("prompt_toolkit") and find_spec("rich")):
            raise ValueError(NO_EXTRA)
        from .chat import Screen as kind
    config = configured(options)
    llm, where = choose(config.provider, config.model, config.base_url, options.ports)
    llm.dump = dump_to(options.dump) if options.dump else None
    if prompt is not None and not prompt.strip():
        raise ValueError("There is nothing to answer: the prompt is empty.")
    if options.resume:
        name = kind.pick(found)
    elif not name and prompt is None:
        name = free_name(here)
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
        if not options.json:
            terminal.say(f"{llm.model} at {where}, in {here}", BOLD)
        conversation.shown.says = on_screen
        result: Result | None = conversation.runner.run(converse())
        if prompt is None:
            terminal.say(f"({conversation.usage()}. agentloop --resume goes on with it.)", DIM)
            return 0
        if result and not options.json:
            if not on_screen:
                print(safe(result.text), flush=True)
            terminal.say(f"({conversation.usage()})", DIM)
    return 0 if result and result.stop_reason in ("completed", "done") else 1


class JSONLines(Chat):
    """Shows each event as a line of JSON."""

    def show(self, event: Event) -> None:
        print(json_line(event), flush=True)


def explain(options: argparse.Namespace) -> int:
    """Prints which classes of an agent handle each seam, in the order of a request."""
    sys.path.insert(0, os.getcwd())
    try:
        agent: Any = resolve_name(options.agent)
    except (ImportError, AttributeError) as error:
        raise ValueError(str(error)) from None
    if not inspect.isclass(agent) or not all(hasattr(agent, seam) for seam in SEAMS):
        raise ValueError(f"{options.agent} is no agent: name one as my_module:MyAgent.")
    classes = [cls for cls in agent.__mro__ if cls.__module__ not in ("abc", "builtins")]
    names = [cls.__name__ for cls in classes]
    print(f"{names[0]}, from left to right: {', '.join(names[1:])}")
    width = max(map(len, names)) + 2
    for seam in SEAMS:
        title = seam
        for cls in classes:
            method = vars(cls).get(seam)
            if method and not getattr(method, "__isabstractmethod__", False):
                code = inspect.unwrap(method).__code__
                place = code.co_filename.removeprefix(f"{os.getcwd()}{os.sep}")
                print(f"{title:12}{cls.__name__:{width}}{place}:{code.co_firstlineno}")
                title = ""
    return 0
