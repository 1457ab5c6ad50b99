"""A chat's prompt and its slash commands: each is a function, and its docstring the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from ..messages import AssistantMessage, Record, Reset, RunStart, SideRequest, Summary, UserMessage
from ..prices import price_of
from .chat import Chat
from .models import another_model
from .sessions import free_names
from .terminal import DIM, cut
from .typed import Typed
from .view import page_of, write

Command: TypeAlias = Callable[[Chat, str], None]

KEYS = """\
A line that ends with \\ goes on in the next; a pasted block is one message.
Ctrl-C stops an answer; the conversation goes on. At the prompt, Ctrl-C twice leaves."""


def talk(chat: Chat, typed: Typed | None = None) -> int:
    """Prompt and answer in turn until the user leaves; returns the exit status."""
    typed, leaving = typed or Typed(), False
    while True:
        chat.terminal.end_line()
        try:
            message = typed.message()
            leaving = False
        except EOFError:
            chat.terminal.say("")
            return 0
        except KeyboardInterrupt:
            chat.terminal.say("")
            if leaving:
                return 0
            leaving = True
            chat.terminal.say("(Ctrl-C once more leaves.)", DIM)
            continue
        name, _, rest = message.partition(" ")
        if message in ("/exit", "/quit"):
            return 0
        if name.startswith("/") and is_command(name[1:], alone=name == message):
            obey(chat, name[1:], rest.strip())
        elif message:
            chat.answer(message)


def is_command(word: str, *, alone: bool) -> bool:
    """Whether it is one, or can only be meant as one: /tmp may begin a message."""
    return word in COMMANDS or (word.isalpha() and (alone or bool(near(word))))


def near(word: str) -> list[str]:
    return get_close_matches(word, [*COMMANDS, "exit"])


def obey(chat: Chat, name: str, rest: str) -> None:
    """Do what a command says, or say why not."""
    if name not in COMMANDS:
        meant = " or ".join(f"/{each}" for each in near(name))
        hint = f"did you mean {meant}?" if meant else "/help lists what there is."
        chat.terminal.say(f"(There is no /{name}; {hint})", DIM)
        return
    try:
        COMMANDS[name](chat, rest)
    except (OSError, ValueError) as error:
        chat.terminal.say(f"({error})", DIM)


def show_help(chat: Chat, rest: str) -> None:
    """list the commands"""
    lines = [f"/{name:8} {command.__doc__}" for name, command in COMMANDS.items()]
    chat.terminal.say("\n".join([*lines, "/exit     leave; Ctrl-D does it too", KEYS]))


def usage(chat: Chat, rest: str) -> None:
    """how many tokens this conversation took, and its cost if that is known"""
    chat.terminal.say(chat.usage(), DIM)


def compact(chat: Chat, rest: str) -> None:
    """let the model summarize the conversation now, and go on from that"""
    chat.compact()


def fork(chat: Chat, name: str) -> None:
    """[NAME] go on in a copy; this session stays as it is"""
    if not chat.agent.log:
        raise ValueError("There is nothing to copy yet.")
    name = name or next(free_names(chat.workspace.root, chat.agent.session_dir))
    before, twin = chat.agent, chat.agent.fork(session=name)
    before.close()
    chat.agent = twin
    chat.terminal.say(f"(This is session {name} now; {before.session} stays as it was.)", DIM)


def undo(chat: Chat, rest: str) -> None:
    """take back your last message and all that followed; files stay as they are"""
    log = chat.agent.log
    prompts = [at for at, r in enumerate(log) if isinstance(r, UserMessage) and not r.hidden]
    if not prompts:
        raise ValueError("There is nothing to take back.")
    starts = (at for at in range(prompts[-1], -1, -1) if isinstance(log[at], RunStart))
    prompt, at = log[prompts[-1]], next(starts, prompts[-1])
    paid = [r for r in log[at:] if isinstance(r, AssistantMessage | Summary | SideRequest)]
    kept = [*up_to(log, at), *(SideRequest(r.usage, model=r.model) for r in paid)]
    chat.agent.clear_history()
    for record in kept:
        chat.agent.record(record)
    chat.workspace.seen.clear()
    said = cut(" ".join(getattr(prompt, "text", "").split()), 60)
    note = "What it did to files is not undone; the session's file keeps all."
    chat.terminal.say(f'(Taken back: "{said}". {note})', DIM)


def up_to(log: Sequence[Record], at: int) -> list[Record]:
    """The records before `at`, to follow a Reset: what a Summary counts is counted from that."""
    shift = 0 if log and isinstance(log[0], Reset) else 1
    return [
        replace(record, keep=record.keep + shift) if isinstance(record, Summary) else record
        for record in log[:at]
        if not isinstance(record, Reset)
    ]


def clear(chat: Chat, rest: str) -> None:
    """begin a new conversation; the session begins afresh too, and its file keeps all"""
    chat.agent.clear_history()
    chat.workspace.seen.clear()
    kept = f" Session {chat.agent.session} begins afresh too." * bool(chat.agent.session)
    chat.terminal.say(f"(A new conversation.{kept})", DIM)


def retry(chat: Chat, rest: str) -> None:
    """go on after an error, or after Ctrl-C"""
    if chat.unfinished:
        chat.answer(None)
    else:
        chat.terminal.say("(There is nothing to retry.)", DIM)


def show_tools(chat: Chat, rest: str) -> None:
    """list what the model may call"""
    for tool in chat.agent.toolset():
        first = tool.description.strip().partition("\n")[0]
        chat.terminal.line(f"{tool.name:10} {first}")


def model(chat: Chat, name: str) -> None:
    """[NAME] go on with another model, of this provider or as PROVIDER:NAME"""
    if name:
        chat.agent.llm = another_model(chat.agent.llm, name)
    chat.terminal.say(f"(The model is {chat.agent.llm.model}.)", DIM)


def view(chat: Chat, rest: str) -> None:
    """write this conversation as a page to look into, and say where"""
    if chat.agent.session is None:
        raise ValueError("This conversation is not kept.")
    folder = Path(chat.agent.session_dir).expanduser()
    page = folder / f"{chat.agent.session}.html"
    write(page, page_of(chat.agent.session, chat.agent.log, price=price_of()))
    chat.terminal.say(f"({page.as_uri()})", DIM)


COMMANDS: dict[str, Command] = {
    "help": show_help,
    "retry": retry,
    "undo": undo,
    "fork": fork,
    "compact": compact,
    "clear": clear,
    "model": model,
    "tools": show_tools,
    "usage": usage,
    "view": view,
}
