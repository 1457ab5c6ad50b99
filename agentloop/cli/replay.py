"""`agentloop replay`: a session turn by turn, as a test, or live again from a turn."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import SessionLocked
from ..messages import (
    AssistantMessage,
    Message,
    Record,
    RunEnd,
    ToolCall,
    ToolMessage,
)
from ..models.replay import dump_to, tail_of
from ..prices import PriceOf, price_of
from ..records import dump_record
from ..store import SessionFile, read_log, session_path
from ..toolkits.files import Workspace
from ..toolkits.shell import Shell
from ..transcript import closing_results, view
from .chat import Chat
from .commands import talk
from .models import NO_MODEL, NoModel, choose
from .shown import arguments_of, outline
from .terminal import BOLD, CYAN, DIM, RED, Log, Terminal, reason
from .view import figures, path_of, pruned

FILES_NOTE = "(The files are as they are now, not as they were at turn {}.)"
CODING = """\
import asyncio
import re
import sys
import shutil
from pathlib import Path

from agentloop.cli.chat import CodingAgent
from agentloop.cli.rerun import rerun
from agentloop.models.replay import ReplayModel
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.shell import Shell

SESSION = Path({session!r})
FOLDER = Path({folder!r})  # as it was when the session began
IGNORE = r"in \\d+\\.\\d+ ?s"  # what differs from one time to the next


def make_agent(llm, folder):
    files, shell = Workspace(folder), Shell(folder)
    return CodingAgent(llm=llm, tools=[*files.tools, *shell.tools])  # called: {tools}


def test_{name}(tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns(".git", ".venv", "node_modules"))
    ignore = "|".join([re.escape(str(FOLDER)), re.escape(str(folder)), IGNORE])
    llm = ReplayModel(SESSION, ignore=ignore)
    asyncio.run(rerun(make_agent(llm, folder), llm))
"""
OTHER = """\
import asyncio
from pathlib import Path

{imports}
from agentloop.cli.rerun import rerun
from agentloop.models.replay import ReplayModel

SESSION = Path({session!r})


def make_agent(llm):
    {agent}


def test_{name}():
    llm = ReplayModel(SESSION)  # ignore=r"..." is for what differs from one time to the next
    asyncio.run(rerun(make_agent(llm), llm))
"""


def add_options(parser: argparse.ArgumentParser, providers: Sequence[str]) -> None:
    add = parser.add_argument
    add("file", metavar="SESSION", help="the session's file, or its name")
    add("--at", metavar="K", type=int, help="show turn K with all that the model saw")
    add("--fork", metavar="NAME", help="with --at: ask turn K again, live, in a new session NAME")
    add("--testcase", action="store_true", help="print a pytest file that replays the session")
    add("--agent", metavar="MODULE:NAME", help="for --testcase: a class or function, of llm=")
    add("--folder", default=".", help="for --testcase: where the session worked (default: here)")
    unset = argparse.SUPPRESS  # what was said before the command stays
    add("--provider", choices=providers, default=unset, help="for --fork, as are those below")
    for option in ("--model", "--base-url", "--prompt", "--dump"):
        add(option, default=unset, help="as without a command")
    add("--yes", action="store_true", default=unset, help="as without a command")


def run(options: argparse.Namespace) -> int:
    """Does what the options say; returns the exit status."""
    terminal = Terminal(sys.stdout)
    try:
        path = path_of(options.file)
        log = read_log(path)
        turns = [at for at, record in enumerate(log) if isinstance(record, AssistantMessage)]
        turn: int | None = options.at
        if options.fork and turn is None:
            raise ValueError("--fork needs --at K: the turn to go on from")
        if turn is not None and not 1 <= turn <= len(turns):
            raise ValueError(f"--at {turn}: {path.name} has the turns 1 to {len(turns)}")
        if options.testcase:
            print(as_pytest(path, log, options.folder, options.agent), end="")
            return 0
        if options.fork and turn:
            return go_on(options, terminal, path, log[: turns[turn - 1]])
    except (SessionLocked, OSError, ValueError) as error:
        Terminal(sys.stderr).say(reason(error), RED)
        return 2
    step_through(terminal, log, turns, turn)
    return 0


# ---- step by step


def step_through(
    terminal: Terminal, log: Sequence[Record], turns: Sequence[int], only: int | None = None
) -> None:
    """Shows each turn, or one with its whole context. On a screen, it waits between them."""
    results = {r.tool_call_id: r for r in log if isinstance(r, ToolMessage)}
    price, whole = price_of(), only is not None
    asks = terminal.asks and not whole
    for number, (at, following) in enumerate(zip(turns, [*turns[1:], len(log)], strict=True), 1):
        reply = log[at]
        if only not in (None, number) or not isinstance(reply, AssistantMessage):
            continue
        show_turn(terminal, f"Turn {number} of {len(turns)}", reply, price)
        for message in seen(log, turns, number, whole=whole):
            show_message(terminal, message, whole=whole)
        show_reply(terminal, reply)
        for call in reply.tool_calls:
            show_call(terminal, call, results.get(call.id), whole=whole)
        for record in log[at:following]:
            if isinstance(record, RunEnd):
                terminal.say(f"The run ended: {record.stop_reason}", DIM)
        if asks and number < len(turns):
            answer = terminal.ask("Enter: the next turn, a: all, q: leave > ")
            if answer in ("q", "quit"):
                return
            asks = answer not in ("a", "all")


def seen(
    log: Sequence[Record], turns: Sequence[int], number: int, *, whole: bool
) -> Sequence[Message]:
    """What the model saw in a turn: all of it as it was pruned, or what came since the last."""
    messages = view(log[: turns[number - 1]])
    if not whole:
        return tail_of(messages)
    gone = {call_id: text for call_id, (turn, text) in pruned(log).items() if turn < number}
    return [
        replace(message, content=gone[message.tool_call_id])
        if isinstance(message, ToolMessage) and message.tool_call_id in gone
        else message
        for message in messages
    ]


def show_turn(
    terminal: Terminal, title: str, reply: AssistantMessage, price: PriceOf | None
) -> None:
    data = figures(reply, price)
    parts = [data["model"] or "", "" if data["seconds"] is None else f"{data['seconds']:.2f} s"]
    if "in" in data:
        cached = f" ({data['cached']:,} cached)" * bool(data["cached"])
        parts += [f"{data['in']:,} tokens in{cached}", f"{data['out']:,} out"]
        parts += [] if data["cost"] is None else [f"${data['cost']:.4f}"]
    terminal.say(f"\n{title}: {', '.join(filter(None, parts)) or 'no figures'}", BOLD)


def show_message(terminal: Terminal, message: Message, *, whole: bool) -> None:
    """What the model saw: a line of it, or all."""
    who = f"result of {message.tool_name}" if isinstance(message, ToolMessage) else "user"
    who = "assistant" if isinstance(message, AssistantMessage) else who
    who = "program" if getattr(message, "hidden", False) else who
    if whole:
        terminal.line(f"  saw {who}", DIM)
        if message.text:
            terminal.block(message.text, "    | ")
        for call in getattr(message, "tool_calls", ()):
            terminal.line(f"    * {call.name} {arguments_of(call.parsed or {})}", DIM)
    else:
        terminal.line(f"  saw {who}: {outline('', message.text)}", DIM)


def show_reply(terminal: Terminal, reply: AssistantMessage) -> None:
    if reply.text.strip():
        terminal.line("  said", DIM)
        terminal.block(reply.text, "    | ")


def show_call(
    terminal: Terminal, call: ToolCall, result: ToolMessage | None, *, whole: bool
) -> None:
    known = call.parsed
    terminal.line(
        f"  * {call.name} {call.arguments if known is None else arguments_of(known)}", CYAN
    )
    if result is None:
        terminal.line("    no result: it was cut off, or waits", RED)
        return
    took = "" if result.seconds is None else f"{result.seconds:.2f} s, "
    style = RED if result.is_error else DIM
    terminal.line(
        f"    {took}{'error: ' * result.is_error}{outline(call.name, result.text)}", style
    )
    if whole:
        terminal.block(result.text, "    | ")


# ---- live again


def go_on(
    options: argparse.Namespace, terminal: Terminal, path: Path, log: Sequence[Record]
) -> int:
    """Puts the records into a new session and lets a model go on from there, as in a chat."""
    logging.getLogger().addHandler(Log(terminal))
    try:
        llm, where = choose(options.provider, options.model, options.base_url, options.ports)
    except NoModel:
        terminal.say(NO_MODEL)
        return 2
    if options.dump:
        llm.dump = dump_to(options.dump)
    with SessionFile(session_path(options.fork, path.parent), new=True) as file:
        for record in [*log, *closing_results(log)]:
            file.append(dump_record(record))
    conversation = Chat(
        llm, Path.cwd(), terminal, yes=options.yes, session=options.fork, session_dir=path.parent
    )
    with conversation:
        terminal.say(f"{llm.model} at {where}, from turn {options.at} of {path.name}", BOLD)
        terminal.say(FILES_NOTE.format(options.at), DIM)
        result = conversation.answer(options.prompt)
        if result and terminal.asks:
            return talk(conversation)
    reason = result.stop_reason if result else "error"
    return {"completed": 0, "done": 0, "interrupted": 130}.get(reason, 1)


# ---- as a test


def as_pytest(path: Path, log: Sequence[Record], folder: str, agent: str | None = None) -> str:
    """A pytest file that does the session again, with the tools of the coding agent or of `agent`.

    ValueError: `agent` is not MODULE:NAME.
    """
    replies = [record for record in log if isinstance(record, AssistantMessage)]
    used = {call.name for reply in replies for call in reply.tool_calls}
    names = ", ".join(sorted(re.sub(r"[^\w-]", "_", name)[:64] for name in used)) or "none"
    name = re.sub(r"\W", "_", path.stem)
    fields = {"session": str(path.resolve()), "tools": names, "name": name}
    title = (
        f'"""Does the session {name} again: {len(replies)} turns. A changed result fails."""\n\n'
    )
    if agent:
        module, _, factory = agent.partition(":")
        if not (factory.isidentifier() and all(map(str.isidentifier, module.split(".")))):
            raise ValueError(f"--agent is MODULE:NAME, such as my_agent:MyAgent, not {agent!r}")
        imports = f"from {module} import {factory}"
        return title + OTHER.format(imports=imports, agent=f"return {factory}(llm=llm)", **fields)
    here = Path(folder).resolve(strict=True)
    if used <= {tool.name for tool in (*Workspace(here).tools, *Shell(here).tools)}:
        return title + CODING.format(folder=str(here), **fields)
    make = f"tools = []  # PUT YOUR TOOLS HERE; the session called: {names}\n    "
    make += "return Agent(llm=llm, tools=tools)"
    return title + OTHER.format(imports="from agentloop import Agent", agent=make, **fields)
