"""The chat in a terminal: the prompt at the bottom, the conversation scrolling above."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from select import select
from textwrap import fill
from time import monotonic
from typing import TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import FuzzyWordCompleter
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.shortcuts import choice
from prompt_toolkit.utils import is_dumb_terminal
from pydantic_core import from_json, to_json

from agentloop import Result, Review, ToolCall, ToolError
from agentloop.cli.terminal import BOLD, RED, columns_of, cut, exact, one_line
from agentloop.mixins.approval import plain_arguments

from .config import Pick
from .conversation import Setup
from .prompt_input import NAMED, Pastes, is_image, named_files
from .rendering import RenderedChat, last_lines
from .sessions import is_cut_off, sessions_of
from .standing_approvals import Always, always_for

Option = TypeVar("Option")

HISTORY = "~/.agentloop/history"  # next to the sessions
YES = ("y", "yes", "yes please", "yep", "ok", "okay", "sure")
ALWAYS = ("a", "always")
NO = ("n", "no")
EDIT = ("e", "edit")
RESPOND = ("r", "respond")
EXITS = ("exit", "quit", "/exit", "/quit")  # accepted at any time
PLANNING = "The user wants a plan before any change, so you may only read."
ROOM = 10  # columns after a label, to type the answer
LONG_RUN = 10.0  # seconds of a run whose end rings
GRACE = 1.0  # seconds after the display of a question, during which input belongs to a draft
WIDE_WORD = 4  # maximum number of wide characters of an answer that's a word, such as "yes"
TYPED_AHEAD = 20  # number of keys that a user may type while the chat is busy
PASTE_GAP = 0.1  # maximum seconds between two parts of an unmarked paste
REDRAW_PAUSE = 0.2  # seconds; drawing a screen of Markdown takes up to 0.05
KEYS = """\
Ctrl-D    exit (also: Ctrl-C twice)
!COMMAND  run a shell command, and add its output to the conversation
@PATH     attach a file or an image
Tab       complete
Ctrl-R    search the input history
Ctrl-O    show the last folded text, then the previous ones
Ctrl-X Ctrl-E  edit the message in $EDITOR
Ctrl-B    move a running command to the background
Shift-Tab next mode: edits without approval, only planning, approval of all
Esc       stop an answer (also: Ctrl-C)
Answers   to a question: y(es), a(lways), n(o), e(dit), r (you write the result)
Enter     during an answer: queue the message (Up edits it, Esc removes it)
          after an error or a kill: continue the run
A line that ends with \\ continues in the next line."""


class InputHistory(FileHistory):
    """The inputs of this chat and of earlier ones. If the file can't be used, the chat still works."""

    def load_history_strings(self) -> Iterator[str]:
        with suppress(OSError):
            yield from super().load_history_strings()

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            Path(HISTORY).expanduser().touch(0o600)
            super().store_string(string)


class MarkingRenderer(Renderer):
    """A renderer that never switches off the marks around pastes.

    prompt_toolkit switches them off whenever it prints; each line of a paste would then be an input.
    """

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        super().reset(_scroll, leave_alternate_screen)
        self.output.enable_bracketed_paste()
        self.output.flush()


class Answer(str):
    """A text in the queue that the user has sent after the open question."""


def pick_one(question: str, options: Sequence[tuple[Option, str]]) -> Option:
    """Let the user pick an option: with the arrow keys, or in a dumb terminal by its number."""
    if not is_dumb_terminal():
        return choice(question, options=options)
    numbered = {str(number): value for number, (value, _) in enumerate(options, 1)}
    for number, (_, label) in enumerate(options, 1):
        print(f"{number}. {label}")
    answer = ""
    while answer not in numbered:
        try:
            answer = input(f"{question} The number: ").strip()
        except EOFError:  # Ctrl-D
            raise KeyboardInterrupt from None
    return numbered[answer]


class Screen(RenderedChat):
    """An interactive chat.

    work: the task of the current input.
    queue: the inputs after it.
    asking: a future for the answer to an approval request.
    """

    pick: Pick | None = staticmethod(pick_one)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.work: asyncio.Task[None] | None = None
        self.queue = list[str]()
        self.asking: asyncio.Future[str] | None = None
        self.leaves = False  # whether the next Ctrl-C exits
        self.pastes = Pastes()
        self.drafts: dict[str, str] = {}  # typed text with placeholders, by sent prompt
        self.standing = list[Always]()
        self.one_question = asyncio.Lock()  # sub-agents may ask at the same time
        self.status = ""
        self.label = ""  # the label of the open question
        self.is_pasted = False  # whether the prompt contains an unmarked paste
        self.is_sent_at_once = False  # whether Enter arrived together with the text
        # times of the question's display, and of the first key of the text in the prompt, or 0
        self.asked_at = self.typed_at = 0.0
        self.commands = {
            name[3:]: getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        self.session = PromptSession[str](
            lambda: self.prompt,
            history=InputHistory(Path(HISTORY).expanduser()),
            completer=FuzzyWordCompleter(self.words, WORD=True),
            complete_while_typing=False,
            complete_in_thread=True,
            key_bindings=self.keys(),
            erase_when_done=True,
            enable_suspend=True,
        )
        self.app = self.session.app
        area = Window(FormattedTextControl(lambda: ANSI(self.live_area())), dont_extend_height=True)
        layout = HSplit([area, self.session.layout.container])
        self.app.layout = Layout(layout, self.session.layout.current_window)
        self.buffer = self.session.default_buffer
        self.buffer.on_text_changed += self.begin_text
        self.app.renderer = MarkingRenderer(
            self.app.renderer.style,
            self.app.output,
            cpr_not_supported_callback=self.app.cpr_not_supported_callback,
        )

    async def talk(self, prompt: str, typed: str) -> None:
        """Answer the first message, unless it's empty, and then all input until the user exits."""
        self.terminal.stream = None  # print to sys.stdout, which patch_stdout replaces
        await self.greet()
        with patch_stdout(raw=True):
            if prompt:  # never a command, because a shell may have inserted somebody else's text
                self.terminal.say(f"\n> {prompt}", BOLD)
                self.begin(self.reply(prompt, typed))
            else:
                self.tell_interrupted()
            ticks = asyncio.ensure_future(self.tick())
            self.prompting = asyncio.ensure_future(self.read())
            try:
                with suppress(EOFError, asyncio.CancelledError):
                    await self.prompting
            finally:
                ticks.cancel()
                if self.work:
                    self.stop()
                    await asyncio.wait([self.work])
                self.session.output.disable_bracketed_paste()
                self.session.output.flush()

    async def read(self) -> None:
        """Read input until the user exits."""
        stdin, keys = self.session.input, self.app.key_processor
        with stdin.raw_mode():  # a terminal that edits lines loses the end of a long one
            while True:  # in a dumb terminal, a prompt ends after every line, and at Ctrl-C
                try:
                    self.buffer.text = await self.session.prompt_async(default=self.buffer.text)
                    keys.feed_multiple(get_typeahead(stdin))  # what arrived after Enter
                    self.enter()
                    store_typeahead(stdin, keys.empty_queue())
                except KeyboardInterrupt:
                    self.stop()
                    self.clear()  # the next prompt would not show it

    async def tick(self) -> None:
        """Redraw the live area every REDRAW_PAUSE seconds while something is running."""
        while True:
            self.report_ended()
            if self.work or not self.status:
                self.status = await self.meter()
                self.app.invalidate()
            await asyncio.sleep(REDRAW_PAUSE)

    def live_area(self) -> str:
        """Draw the live area: incomplete text, calls that run, the queue, the status line."""
        lines = self.running()
        if self.asking and self.buffer.text and not self.is_answering:
            lines += ["A question awaits your answer. Send or delete this text first."]
        elif self.work:
            hint = "Up edits the last message, Esc removes it" if self.queue else "Esc stops"
            lines += [f"{hint} ({monotonic() - self.began:.0f} s)"]
        lines += [f"next: {text}" for text in self.queue]
        lines += [f"{self.mode}  {self.status}  {self.agent.llm.model}".strip()]
        lines = [f"\x1b[2m{cut(one_line(line), self.terminal.width)}\x1b[0m" for line in lines]
        newest = last_lines(self.text, self.console.height)
        # only the last lines, which fit on the screen
        lines = ["", *self.rendered(newest).splitlines(), *lines][6 - self.console.height :]
        return "\n".join(lines)

    async def ask(self, call: ToolCall, reason: str) -> bool | str | Review:
        """Show a complete call and ask for approval, after any other questions.

        Returns True or False, the reason of a denial, or a review with arguments or a result.
        """
        async with self.one_question:
            owner = self.owner_of(call)
            always = None
            if not owner:
                call, tool = self.as_executed(call), self.agent.tool(call)
                if self.mode == "plan" and not tool.read_only:  # a rule asks
                    return PLANNING
                for approval in self.standing:
                    if approval.covers(call, tool, self.shell.cwd, self.root):
                        return True
                always = always_for(call, tool)
            self.draw_question(call, owner)
            self.output = ""
            offer = f"always ({exact(always.text)}), " if always else ""
            known = (*YES, *NO, *EDIT, *RESPOND, *(ALWAYS if always else ()))
            answer = await self.answer_to(
                f"yes, {offer}no, edit, respond, or an instruction >", known
            )
            word = word_of(answer)
            if word in EDIT:
                return await self.edit(call, owner)
            if word in RESPOND:
                return Review("respond", await self.next_answer("the result for the model >"))
            if always and word in ALWAYS:
                self.standing.append(always)
            if word in (*YES, *ALWAYS):
                return True
            return False if word in NO else answer

    def as_executed(self, call: ToolCall) -> ToolCall:
        """The call with its validated arguments, as the tool will get them."""
        tool = self.agent.tool(call)
        arguments = plain_arguments(tool.validate(call.arguments))
        text = to_json(arguments, inf_nan_mode="strings", fallback=str).decode()
        return replace(call, arguments=text)

    async def edit(self, call: ToolCall, owner: str) -> bool | Review:
        """Let the user change the arguments of a call: a command as it is, others as JSON."""
        arguments = call.parsed or {}
        is_command = call.name == "bash"
        text = str(arguments["command"]) if is_command else exact_json(arguments)
        while True:
            if not is_dumb_terminal():
                self.buffer.text = text
                self.buffer.cursor_position = len(text)
            text = await self.next_answer("Enter runs >")
            try:
                edited = arguments | {"command": text} if is_command else from_json(text)
                if not owner:
                    self.agent.tool(call).validate(to_json(edited).decode())
                return edited == arguments or Review("allow", arguments=edited)
            except (ToolError, ValueError) as error:
                self.note(f"Not run: {error}")

    async def confirm(self, path: str) -> bool:
        """Ask the user whether to attach a file."""
        self.box(path, "a file to attach")
        answer = await self.answer_to("attach: yes or no >", (*YES, *NO))
        return word_of(answer) in YES

    async def answer_to(self, label: str, words: Sequence[str]) -> str:
        """Get the user's answer to a question: one of the words, or a sentence.

        Text is an answer if you typed its first key on an empty prompt, at least GRACE seconds after
        the label appeared. Other text is the draft of a message, which Enter sends or queues.
        """
        self.ring()
        self.asked_at = monotonic()
        if is_dumb_terminal():  # the prompt was printed before the question, and is not updated
            await asyncio.sleep(GRACE)
        answer = ""
        while not is_sentence(answer) and word_of(answer) not in words:
            if answer:
                self.note(f"{answer}? Answer with one of the words, or with a sentence.")
            answer = await self.next_answer(label)
        return answer

    async def next_answer(self, label: str) -> str:
        """Wait for the next text that the user sends as an answer. The prompt shows the label."""
        self.label = label
        if is_dumb_terminal():
            self.note(label)
        self.asking = asyncio.get_running_loop().create_future()
        try:
            answer = await self.asking
            self.echo(answer)
            return self.pastes.unfold(answer)
        except asyncio.CancelledError:
            if self.is_answering:  # the text in the prompt isn't a message
                self.clear()
            raise
        finally:
            self.asking = None

    @property
    def is_answering(self) -> bool:
        """Whether the text in the prompt, or the next key, answers the open question."""
        if not self.asking:
            return False
        return (self.typed_at or monotonic()) >= self.asked_at + GRACE

    @property
    def prompt(self) -> str:
        """The label before the cursor, on several lines if the terminal is narrow."""
        if is_dumb_terminal():  # the prompt is printed once, before the work of its input
            return "" if self.work else "> "
        if not self.is_answering:
            return "> "
        return fill(self.label, max(self.terminal.width - ROOM, ROOM)) + " "

    # ---- typing

    def keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter", filter=~is_searching)(self.enter)
        # Alt-b arrives as Esc and b at the same time
        is_alone = Condition(lambda: bool(self.work) and not self.app.key_processor.input_queue)
        keys.add("escape", filter=is_alone & ~is_searching, eager=True)(self.escape)
        keys.add("up", filter=Condition(lambda: bool(self.queue) and not self.buffer.text))(
            self.edit_queued
        )
        keys.add("c-c", filter=~is_searching)(self.stop)
        keys.add("<sigint>")(self.ignore)
        keys.add("c-o")(self.unfold)
        keys.add("c-x", "c-e")(self.open_editor)
        keys.add("c-b", filter=Condition(lambda: bool(self.calls)))(self.to_background)
        keys.add("s-tab")(self.next_mode)
        keys.add("<bracketed-paste>")(self.paste)
        return keys

    def ignore(self, _: object) -> None:
        """Do nothing: Ctrl-C in a pager reaches this process, too."""

    def begin_text(self, _: object = None) -> None:
        """Remember when the first key of a text in the prompt was pressed."""
        arrived = get_app().key_processor.input_queue
        self.is_sent_at_once = any(press.key == Keys.Enter for press in arrived)
        if not self.buffer.text:
            self.typed_at, self.is_pasted = 0.0, False
        elif not self.typed_at:
            self.typed_at = monotonic()

    def clear(self, *, append_to_history: bool = False) -> None:
        self.buffer.reset(append_to_history=append_to_history)  # does not emit on_text_changed
        self.begin_text()

    def enter(self, _: object = None) -> None:
        """Do what the typed text says."""
        text = self.buffer.text.strip()
        acts = self.is_answering or text in EXITS or text.startswith(("!", "/"))
        is_held = acts and self.is_sent_at_once
        if is_held or self.is_pasting():
            self.buffer.insert_text("\n" + self.pastes.fold(self.arrived_text()))
            self.is_pasted = True
            if is_held or is_dumb_terminal():  # whose next prompt doesn't show the text
                self.note(f"Press Enter to send: {text}")
        elif text in EXITS:
            self.clear(append_to_history=True)
            self.leave()
        elif not text:
            if not self.work and is_cut_off(self.agent):
                self.begin(self.reply(None))
        elif text.endswith("\\"):
            self.buffer.delete_before_cursor()
            self.buffer.newline()
        elif self.asking and self.is_answering:
            self.clear()
            self.asking.set_result(text)
        else:
            if self.is_pasted:
                self.doubtful.update(NAMED.findall(text))
            if self.question and self.typed_at > self.asked_at:
                earlier = [each for each in self.queue if isinstance(each, Answer)]
                self.queue.insert(len(earlier), Answer(text))
            else:
                self.queue.append(text)
            self.clear(append_to_history=True)
            self.take_next()

    def is_pasting(self) -> bool:
        """Whether many keys have already arrived, from a paste that the terminal doesn't mark."""
        keys = self.app.key_processor.input_queue
        return len(keys) > (0 if self.is_pasted else TYPED_AHEAD)

    def arrived_text(self) -> str:
        """Take the text of the keys that have arrived, up to a report of the terminal.

        One key at a time would take longer with every line.
        """
        keys, stdin = self.app.key_processor.input_queue, self.session.input
        while select([stdin.fileno()], [], [], PASTE_GAP)[0] and (new := stdin.read_keys()):
            keys.extend(new)
        text = ""
        while keys and (keys[0].data >= " " or keys[0].data in "\r\n\t"):
            text += keys.popleft().data
        return text.replace("\r", "\n")

    def take_next(self) -> None:
        """Start the first entry of the queue, unless it's older than the open question."""
        is_next = self.queue and (not self.question or isinstance(self.queue[0], Answer))
        if is_next and not self.work:
            self.submit(self.queue.pop(0))

    def show_question(self) -> None:
        super().show_question()
        if self.question:  # what was queued or begun before doesn't answer it
            self.queue = [str(text) for text in self.queue]
            self.asked_at = monotonic()

    def escape(self, _: object) -> None:
        """Remove the last entry of the queue; if it's empty, stop what's running."""
        if self.queue:
            self.queue.pop()
        else:
            self.stop()

    def edit_queued(self, _: object) -> None:
        """Move the last entry of the queue back into the prompt."""
        self.put_back(self.queue.pop())

    def to_background(self, _: object) -> None:
        """Move the running command to the background."""
        if not self.shell.move_to_background():
            self.note("Not moved: no command is running, or 16 commands are in the background.")

    def stop(self, _: object = None) -> None:
        """Stop what's running and clear the queue. If nothing is, clear the prompt, or exit."""
        self.queue.clear()
        if self.agent.running:
            self.agent.interrupt()
        elif self.work:
            self.work.cancel()
        elif self.buffer.text:
            self.clear()
        elif self.leaves:
            self.leave()
        else:
            self.leaves = True
            self.note("Press Ctrl-C again to exit.")

    def leave(self) -> None:
        """End the chat, and stop what's running."""
        self.queue.clear()
        self.prompting.cancel()

    async def open_editor(self, _: object) -> None:
        """Edit the message in an editor. A path may be pasted there, so the user must confirm it."""
        typed = NAMED.findall(self.buffer.text)
        await self.buffer.open_in_editor()
        self.doubtful.update({*NAMED.findall(self.buffer.text)} - {*typed})

    def paste(self, event: KeyPressEvent) -> None:
        """Insert pasted text. The path of an image becomes @path."""
        text = event.data
        path = text.strip().strip("'\"").replace("\\ ", " ")
        if is_image(self.root, path):
            self.buffer.insert_text(f'@"{path}" ')
        else:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
            self.buffer.insert_text(self.pastes.fold(text))

    def words(self) -> list[str]:
        """The words that Tab completes."""
        typed = self.buffer.text
        if typed.startswith("/resume "):
            return [session.name for session in sessions_of(self.root)]
        if typed.startswith("/"):
            return [f"/{name}" for name in self.commands]
        return named_files(self.root)

    def submit(self, text: str) -> None:
        """Start what a message or a command asks for."""
        self.echo(text)
        for name in self.pastes.missing(text):  # from the input history
            self.note(f"{name} comes from an earlier chat: paste the text again.")
        typed, text = text, self.pastes.unfold(text)
        self.drafts[text] = typed
        name, _, rest = text[1:].partition(" ")
        is_command = text.startswith("/") and name.isalpha()  # messages may start with /etc/hosts
        if self.question and name not in self.commands:  # the answer may be /tmp
            is_command = False
        if text.startswith("!"):
            self.begin(self.run_command(text[1:]))
        elif is_command:
            self.begin(self.execute(name, rest.strip()))
        else:
            self.begin(self.reply(text, typed))

    async def execute(self, name: str, rest: str) -> None:
        """Run a slash command. The rest of the line is its argument."""
        command = self.commands.get(name)
        if not command:
            near = [
                f" Did you mean /{match}?" for match in get_close_matches(name, self.commands, 1)
            ]
            self.note(f"Unknown command /{name}.{''.join(near)} /help lists the commands.")
        elif signature(command).parameters:
            await command(rest)
        elif rest:
            self.note(f"/{name} has no argument. Write /{name} without further text.")
        else:
            await command()

    def begin(self, work: Awaitable[object]) -> None:
        """Start a task for a message or a command."""
        self.leaves = False
        self.began = monotonic()
        self.work = asyncio.ensure_future(self.finish(work))

    async def finish(self, work: Awaitable[object]) -> None:
        """Wait until this work ends, then start the next entry of the queue."""
        try:
            try:
                await work
            finally:
                self.show_incomplete()
        except asyncio.CancelledError:
            self.note("Stopped.")
        except Exception as error:
            self.terminal.say(str(error), RED)
        if self.question or monotonic() - self.began > LONG_RUN:
            self.ring()
        self.status = ""
        self.work = None
        self.app.invalidate()
        self.tell_interrupted()
        self.take_next()
        if is_dumb_terminal() and not self.work:  # the open prompt has no label
            print("> ", end="", flush=True)

    async def reply(self, prompt: str | None, typed: str = "") -> Result | None:
        try:
            return await super().reply(prompt, typed)
        except asyncio.CancelledError:  # before the run: an interrupted run ends with a Result
            self.put_back(typed)
            raise

    def echo(self, text: str) -> None:
        """Print an input above the live area. In a dumb terminal, the typed line remains."""
        if not is_dumb_terminal():
            self.terminal.say(f"\n> {text}", BOLD)

    def ring(self) -> None:
        """Call the user, unless the bell is off."""
        if self.config.bell:
            print("\a", end="", flush=True)

    def put_back(self, text: str) -> None:
        """Move a message back into the prompt, or into the history if the prompt has a draft.

        On a dumb terminal, it always goes into the history, because the prompt would print its last
        character.
        """
        draft = self.buffer.document
        if draft.text or is_dumb_terminal():
            self.buffer.history.append_string(text)
            self.buffer.reset(draft)
        else:
            self.buffer.insert_text(text)

    # ---- commands

    async def do_help(self) -> None:
        """list the commands"""
        lines = [f"/{name:8} {command.__doc__}" for name, command in self.commands.items()]
        self.terminal.say("\n".join([*lines, KEYS]), indent=10)

    async def do_undo(self) -> None:
        """remove your last message and the answer; files remain unchanged"""
        prompt = self.take_back()
        self.put_back(self.drafts.get(prompt) or self.pastes.fold(prompt))

    async def do_exit(self) -> None:
        """exit"""
        self.leave()

    do_quit = do_exit
    do_clear = RenderedChat.do_new


def exact_json(value: object) -> str:
    """Write JSON, and escape what `exact` escapes, but as JSON does."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(each if exact(each) == each else json.dumps(each)[1:-1] for each in text)


def is_sentence(answer: str) -> bool:
    """Whether an answer is more than a word. Chinese and Japanese sentences have no spaces."""
    wide = columns_of(answer) - len(answer)
    return len(answer.split()) > 1 or wide > WIDE_WORD


def word_of(answer: str) -> str:
    """Reduce an answer to a word: in lower case, without the full stop."""
    return answer.lower().rstrip(".!")
