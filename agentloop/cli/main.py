"""`agentloop`: its arguments, and what it does with them."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from .. import SessionLocked, __version__
from ..events import Event
from ..models.replay import dump_to
from . import bundle, explain, replay, sessions, view
from .chat import Chat
from .commands import talk
from .models import DEFAULT_MODELS, NO_MODEL, NO_OPENAI, PORTS, WAYS, NoModel, choose, plain
from .own_tools import load_tools
from .shown import Shown, json_line
from .terminal import BOLD, DIM, RED, Log, Terminal, safe

EPILOG = f"""\
the model is the first of these that there is, unless --provider says whose it is:
{WAYS}

what is piped in is the prompt, or is added to --prompt. Commands, writes and edits are then denied
(nobody can be asked), unless --yes allows them all.

a chat is kept as a session of its folder, --prompt is not unless --session or --resume says so. The
tools of --tools are your own code: they run unasked. With --json, stdout has nothing but events.

exit status: 0 answered (or left a chat), 1 the model failed or ended early, 2 wrong usage or no
model, 130 interrupted."""
PROBLEMS: dict[type[Exception], str] = {
    FileNotFoundError: "The current folder does not exist any more: go to another.",
    SessionLocked: "Session {0!r} is open in another terminal: leave that chat (/exit), or choose "
    "another --session name.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program, and returns its exit status."""
    options = parser().parse_args(argv)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the encoding cannot carry
    try:
        commands = {"demo": demo, "bundle": bundle.run, "explain": explain.run}
        commands |= {"replay": replay.run, "view": view.run}
        return commands.get(options.command, chat)(options)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads it
        return 1
    except Exception:
        print(safe(traceback.format_exc()), file=sys.stderr)
        return 1


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        better = r"there is no command \1; for a question use --prompt"
        super().error(re.sub(r"argument COMMAND: invalid choice: (.*) \(.*", better, message))


def parser() -> Parser:
    parser = Parser(
        prog="agentloop",
        description="A chat with a coding agent that works in the current folder.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--provider", choices=DEFAULT_MODELS, help="whose API to speak")
    add("--model", help="the model's name")
    add("--base-url", metavar="URL", help="of a server, such as http://localhost:11434/v1")
    kept = "~/.agentloop/sessions/NAME.jsonl, the same from any folder, and go on with it next time"
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--session", metavar="NAME", help=f"keep the conversation in {kept}")
    one.add_argument("--resume", action="store_true", help="go on with this folder's last session")
    one.add_argument("--list", action="store_true", help="list this folder's and named sessions")
    add("--prompt", metavar="TEXT", help="answer this, and exit")
    add("--json", action="store_true", help="with a prompt: print each event as a line of JSON")
    add("--yes", action="store_true", help="allow all commands, writes and edits, unasked")
    what = "more tools: all at the top of FILE.py, or MODULE:NAME; may be given again"
    add("--tools", metavar="FILE", action="append", default=[], help=what)
    add("--dump", metavar="FOLDER", help="write each request's and answer's body there, keyless")
    add("--version", action="version", version=f"agentloop {__version__}")
    add("--ports", help=argparse.SUPPRESS, type=json.loads, default=PORTS)  # for tests
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="other than a chat")
    what = "an agent mends a project; its model is a script"
    shown = commands.add_parser("demo", help=what, description=f"A demo: {what}.")
    add = shown.add_argument
    add("--wire", choices=DEFAULT_MODELS, default="openai", help="whose API to speak")
    add("--kill", action="store_true", help="kill it as it pays a pretend bill; that is paid once")
    what = "write the core and the parts of your choice as one file that is yours"
    bundle.add_arguments(commands.add_parser("bundle", help=what, description=f"Bundle: {what}."))
    what = "print which class of an agent handles what, and where it is"
    shown = commands.add_parser("explain", help=what, description=f"Explain: {what}.")
    shown.add_argument("agent", metavar="MODULE:CLASS", help="such as my_module:MyAgent")
    what = "step through a session, print it as a test, or go on live from one of its turns"
    shown = commands.add_parser("replay", help=what, description=f"Replay: {what}.")
    replay.add_options(shown, list(DEFAULT_MODELS))
    what = "write a page to look into a session with"
    view.add_options(commands.add_parser("view", help=what, description=f"View: {what}."))
    return parser


def demo(options: argparse.Namespace) -> int:
    from . import demo, kill

    if options.kill:
        return kill.kill_demo(Terminal(sys.stdout), options.wire)
    return demo.demo(Terminal(sys.stdout), options.wire, options.dump)


def chat(options: argparse.Namespace) -> int:
    """A conversation, or one answer if there is a prompt already."""
    prompt: str | None = options.prompt
    if not (options.list or (sys.stdin and sys.stdin.isatty())):
        piped = sys.stdin.read() if sys.stdin else ""
        prompt = "\n\n".join(filter(str.strip, [prompt or "", piped]))
    once = prompt is not None
    # The answer goes to stdout; all the rest too if that is a screen, else to stderr.
    on_screen = (sys.stdout.isatty() or not once) and not options.json
    terminal = Terminal(sys.stdout if on_screen else sys.stderr)
    logging.getLogger().addHandler(Log(terminal))
    logging.getLogger("agentloop").setLevel(logging.INFO)
    try:
        here = Path.cwd()
        if options.list:
            sessions.show(here, terminal)
            return 0
        if options.json and not once:
            raise ValueError("--json needs --prompt, or a prompt that is piped in.")
        tools = [tool for where in options.tools for tool in load_tools(where)]
        llm, where = choose(options.provider, options.model, options.base_url, options.ports)
        llm.dump = dump_to(options.dump) if options.dump else None
        if prompt is not None and not prompt.strip():
            raise ValueError("There is nothing to answer: the prompt is empty.")
        show = print_json if options.json else Shown(terminal, text=on_screen)
        name = session_name(options, here, terminal, once=once)
        conversation = Chat(
            llm, here, terminal, yes=options.yes, show=show, tools=tools, session=name
        )
    except NoModel:
        terminal.say(NO_OPENAI if options.provider else NO_MODEL)
        if not once and terminal.asks and terminal.ask("Play the demo? [y/N] > ") in ("y", "yes"):
            return demo(parser().parse_args(["demo"]))
        return 2
    except (SessionLocked, OSError, ValueError) as error:
        problem = PROBLEMS.get(type(error), "{1}")
        terminal.say(problem.format(options.session or "of --resume", plain(error)), RED)
        return 2
    with conversation:
        if not options.json:
            terminal.say(f"{llm.model} at {where}, in {here}", BOLD)
        if name and not options.json:
            terminal.say(conversation.kept(), DIM)
        if prompt is None:
            note = "Commands, writes, edits run unasked. " * options.yes
            terminal.say(f"{note}Ctrl-C stops an answer, /help says more.", DIM)
            status = talk(conversation)
            conversation.sum_up()
            if conversation.agent.session and conversation.agent.log:
                again = f"--session {conversation.agent.session}"
                terminal.say(f"(It goes on with: agentloop {again})", DIM)
            return status
        result = conversation.answer(prompt)
        if not options.json:
            if result and not on_screen:
                print(safe(result.text), flush=True)
            conversation.sum_up()
    reason = result.stop_reason if result else "error"
    return {"completed": 0, "done": 0, "interrupted": 130}.get(reason, 1)


def session_name(
    options: argparse.Namespace, here: Path, terminal: Terminal, *, once: bool
) -> str | None:
    """As what the conversation is kept; None if it is not. ValueError: nothing to resume."""
    if options.resume:
        if not (found := sessions.kept(here)):
            raise ValueError(f"There is no session of {here} to go on with yet.")
        return found[0].name
    if options.session or once:
        name: str | None = options.session
        return name
    try:
        return sessions.begin(here)
    except OSError as error:
        terminal.say(f"(This conversation is not kept: {error})", RED)
        return None


def print_json(event: Event) -> None:
    print(json_line(event), flush=True)
