"""What `/` and `!` do to a conversation.

Copy with: cli/agent.py, cli/view.py and the core.
"""

from __future__ import annotations

import copy
from typing import Any

from ..errors import ToolError
from ..events import TextEvent, ToolResultEvent
from ..messages import SideRequest
from ..prices import price_of
from ..store import session_path
from ..toolkits.shell import MAX_TIMEOUT
from ..transcript import is_own, requests_of, view
from .agent import Chat, CodingAgent, free_name, stem
from .terminal import BOLD
from .view import page_of, write


class Commands(Chat):
    """A chat with commands.

    A method `do_x` is the command /x, and its docstring the help. It gets what follows the command,
    and returns what to put at the prompt.
    """

    def greet(self) -> None:
        """Say which session this is, and show its last prompt and answer."""
        messages, name = self.agent.messages, self.agent.session
        what = f"Session {name}: {len(messages)} messages so far"
        self.note(f"{what}. Esc stops an answer, /help says more.")
        if prompts := [message.text for message in messages if is_own(message)]:
            self.terminal.say(f"> {prompts[-1]}", BOLD)
            self.show(TextEvent(messages[-1].text))

    async def run_command(self, command: str) -> None:
        """Run a command of the user's, and let the model read what it printed."""
        try:
            result = await self.shell.bash(command, MAX_TIMEOUT)
        except ToolError as error:
            result = str(error)
        self.show(ToolResultEvent(command, result, ""))
        self.agent.tell(f"The user ran this command: {command}\n\n{result}")

    async def do_retry(self, rest: str) -> None:
        """go on after an error, or after a stop"""
        await self.reply(None)

    async def do_undo(self, rest: str) -> str:
        """take back your last message and all that followed; files stay as they are"""
        log = [*self.agent.log]
        prompts = [at for at, record in enumerate(log) if is_own(record)]
        if not prompts:
            raise ValueError("There is nothing to take back.")
        at = prompts[-1]
        self.agent.load_history(view(log[:at]))
        for request in requests_of(log[at:]):  # it was paid all the same
            self.agent.record(SideRequest(request.usage, model=request.model))
        self.workspace.seen.clear()
        self.note("Taken back. What was done to files stays.")
        return str(getattr(log[at], "text", ""))

    async def do_fork(self, rest: str) -> None:
        """[NAME] go on in a copy; this session stays as it is"""
        before = self.agent
        name = f"{stem(self.root)}-{rest}" if rest else free_name(self.root)
        self.agent = before.fork(session=name)
        before.close()
        self.note(f"This is session {name} now; {before.session} stays as it was.")

    async def do_resume(self, rest: str) -> None:
        """NAME: go on with another session of this folder; Tab completes its name"""
        settings: dict[str, Any] = self.settings | {"session": rest, "llm": self.agent.llm}
        agent = CodingAgent(**settings)
        self.close()
        self.agent = agent
        self.greet()

    async def do_compact(self, rest: str) -> None:
        """let the model summarize the conversation now, and go on from that"""
        self.agent.listeners = [self.show]
        try:
            if not await self.agent.compact():
                self.note("Nothing was summarized.")
        finally:
            self.agent.listeners = []

    async def do_clear(self, rest: str) -> None:
        """begin a new conversation; the session's file keeps all"""
        self.agent.clear_history()
        self.workspace.seen.clear()
        self.note("A new conversation.")

    async def do_model(self, rest: str) -> None:
        """[NAME] go on with another model of this provider"""
        if rest:
            llm: Any = copy.copy(self.agent.llm)
            llm.model = rest
            self.agent.llm = llm
        self.note(f"The model is {self.agent.llm.model}.")

    async def do_context(self, rest: str) -> None:
        """what fills the context window, which tools there are, and what was used so far"""
        lines = [f"{name:9} {size:9,}" for name, size in (await self.context()).items()]
        names = ", ".join(tool.name for tool in self.agent.toolset())
        self.terminal.say("\n".join([*lines, f"tools: {names}", self.usage()]))

    async def do_view(self, rest: str) -> None:
        """write this conversation as a page to look into, and say where"""
        agent = self.agent
        page = session_path(agent.session or "", agent.session_dir).with_suffix(".html")
        write(page, page_of(page.stem, agent.log, price=price_of()))
        self.note(f"{page.as_uri()}")
