"""The chat in a terminal: the prompt stands below, and above it goes by what is said and done.

Copy with: cli/agent.py, cli/terminal.py, prompt_toolkit, rich.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from glob import iglob
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter, merge_completers
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import StdoutProxy
from prompt_toolkit.shortcuts import choice

from ..messages import ToolCall
from ..mixins.session import SessionInfo
from .agent import described, image_at, sessions_of
from .commands import Commands
from .drawing import Drawn
from .terminal import BOLD, RED, cut, one_line, reason

Command: TypeAlias = Callable[[str], Awaitable[object]]

HISTORY = "~/.agentloop/history"
QUESTION = "yes, always ({}), no, or what to do instead > "
MOST_FILES = 10_000  # that Tab looks at
AT_REVERSED = re.compile(r"[^\s@]*(?=@)")  # it is matched from the right
KEYS = """\
Ctrl-D    leaves
!COMMAND  run it, and let the model read what it prints
@PATH     names a file, and an image goes along
Tab       completes
Ctrl-R    searches what you typed
Ctrl-O    opens the last folded result, then the one before
Esc       stops an answer, and so does Ctrl-C
A line that ends with \\ goes on in the next."""


class Screen(Drawn, Commands):
    """A chat that is typed at."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.work: asyncio.Task[None] | None = None
        self.question: asyncio.Future[str] | None = None
        self.sends = self.leaving = False
        self.status, self.prompt = "", "> "
        self.commands: dict[str, Command] = {
            name[3:]: getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        history = Path(HISTORY).expanduser()
        history.parent.mkdir(0o700, parents=True, exist_ok=True)
        history.touch(0o600)
        self.session = PromptSession[str](
            self.below,
            history=FileHistory(history),
            completer=merge_completers(
                [
                    WordCompleter(self.sentences, sentence=True),
                    WordCompleter(self.files, pattern=AT_REVERSED, match_middle=True),
                ]
            ),
            complete_while_typing=False,
            key_bindings=self.keys(),
            erase_when_done=True,
        )
        self.buffer = self.session.default_buffer

    @staticmethod
    def pick(found: Sequence[SessionInfo]) -> str:
        """The name of the session that the user chooses."""
        options = [(each.name, described(each)) for each in found]
        return choice("Which session?", options=options) if options[1:] else found[0].name

    async def talk(self) -> None:
        """Prompt and answer in turn until the user leaves."""
        with (
            StdoutProxy(raw=True, sleep_between_writes=0.05) as out,  # a question shows at once
            redirect_stdout(out),
            redirect_stderr(out),
        ):
            self.terminal.stream = sys.stdout
            self.greet()
            ticks = asyncio.ensure_future(self.tick())
            try:
                await self.session.prompt_async()
            except EOFError:
                pass
            finally:
                ticks.cancel()
                self.stop()
                await asyncio.wait([self.work or ticks])
        self.terminal.stream = sys.stdout

    async def tick(self) -> None:
        """Keep the status line up to date."""
        while True:
            sizes = await self.context()
            self.status = "  ".join(f"{name} {size:,}" for name, size in sizes.items())
            self.session.app.invalidate()
            await asyncio.sleep(0.5)

    def below(self) -> ANSI:
        """What has not come to its end yet, the status line, and the prompt."""
        hint = "Enter will send it" if self.sends else "Esc stops" if self.work else ""
        lines = [f"* {line}" for line, _ in self.calls.values()]
        lines += [f"  {line}" for line in self.output.splitlines()[-3:]]
        lines += [f"{self.agent.llm.model}  {self.status}  {hint}"]
        lines = [f"\x1b[2m{cut(one_line(line), self.terminal.width)}\x1b[0m" for line in lines]
        lines = [*self.drawn(self.text).splitlines(), *lines][6 - self.console.height :]
        return ANSI("\n".join([*lines, self.prompt]))

    async def ask(self, call: ToolCall, reason: str) -> bool | str:
        """Whether the user allows a call: yes, no, or why not. They see all that they decide on."""
        what, tools, pattern = self.draw_question(call)
        self.output = ""
        typed, self.prompt = self.buffer.document, QUESTION.format(what)
        self.buffer.reset()
        self.question = asyncio.get_running_loop().create_future()
        try:
            answer = await self.question
        finally:
            self.question, self.prompt, self.buffer.document = None, "> ", typed
        if answer in ("a", "always"):
            for tool in tools:
                self.agent.allow_always(tool, pattern)
        elif answer not in ("y", "yes"):
            self.terminal.line(f"(Denied. {answer})")
            return "" if answer in ("n", "no") else answer
        return True

    def keys(self) -> KeyBindings:
        keys, typing = KeyBindings(), has_focus(DEFAULT_BUFFER)
        busy = Condition(lambda: bool(self.work))
        keys.add("enter", filter=typing)(self.enter)
        keys.add("escape", filter=busy, eager=True)(self.stop)
        keys.add("c-c", filter=typing)(self.leave)
        keys.add("c-o")(self.unfold)
        keys.add(Keys.BracketedPaste)(self.paste)
        return keys

    def enter(self, _: object = None) -> None:
        """Take what is typed."""
        text = self.buffer.text.strip()
        if self.question:
            self.question.set_result(text)
        elif text.endswith("\\"):
            self.buffer.delete_before_cursor()
            self.buffer.newline()
        elif self.work:
            self.sends = True
        elif text:
            self.buffer.reset(append_to_history=True)
            self.submit(text)

    def leave(self, _: object) -> None:
        """Stop the answer, or empty the prompt, or leave at the second time."""
        if self.work:
            self.stop()
        elif self.buffer.text:
            self.buffer.reset()
        elif self.leaving:
            self.session.app.exit()
        else:
            self.leaving = True
            self.note("Ctrl-C once more leaves.")

    def paste(self, event: KeyPressEvent) -> None:
        text = event.data
        path = text.strip().strip("'\"").replace("\\ ", " ")
        if image_at(self.root / path):
            text = f'@"{path}" '
        self.buffer.insert_text(re.sub("\r\n?", "\n", text))

    def sentences(self) -> list[str]:
        """What a whole line can be."""
        names = list[str]()
        if self.buffer.text.startswith("/resume "):
            names = [each.name for each in sessions_of(self.root)]
        return [*(f"/{name}" for name in self.commands), *(f"/resume {name}" for name in names)]

    def files(self) -> list[str]:
        if "@" not in (self.buffer.text.split() or [""])[-1]:
            return []
        paths = iglob("**", root_dir=self.root, recursive=True)
        return list(islice(paths, MOST_FILES))

    def submit(self, text: str) -> None:
        """Begin what a message or a command asks for."""
        self.terminal.say(f"> {text}", BOLD)
        self.leaving = False
        name, _, rest = text[1:].partition(" ")
        if text.startswith("!"):
            work: Awaitable[object] = self.run_command(text[1:])
        elif text.startswith("/") and name.isalpha():  # /etc/hosts begins a message
            if name not in self.commands:
                self.terminal.say(f"There is no /{name}.", RED)
            work = self.commands.get(name, self.do_help)(rest.strip())
        else:
            work = self.reply(text)
        self.work = asyncio.ensure_future(self.finish(work))

    async def finish(self, work: Awaitable[object]) -> None:
        """Wait for some work, and be ready for the next."""
        result: object = None
        try:
            result = await work
        except asyncio.CancelledError:
            self.note("Stopped.")
        except Exception as error:
            self.terminal.say(f"({reason(error)})", RED)
        self.markdown(self.text)
        self.text = self.output = ""
        self.calls.clear()
        self.work = None
        if isinstance(result, str):
            self.buffer.document = Document(result)
        self.session.app.invalidate()
        if self.sends:
            self.sends = False
            self.enter()

    def stop(self, _: object = None) -> None:
        """Stop what goes on."""
        self.sends = False
        if self.agent.running:
            self.agent.interrupt()
        elif self.work:
            self.work.cancel()

    async def do_exit(self, rest: str) -> None:
        """leave"""
        self.session.app.exit()

    async def do_help(self, rest: str) -> None:
        """list the commands"""
        lines = [f"/{name:8} {command.__doc__}" for name, command in self.commands.items()]
        self.terminal.say("\n".join([*lines, KEYS]))
