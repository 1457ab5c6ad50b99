"""Takes messages while a run is going on, and shows them before the next model call.

Copy with: the core.

    agent.send("Leave the tests as they are.")            # from anywhere, any thread
    MyAgent(..., reminders=[every(10, "Keep the list of open points up to date.")])
    MyAgent(..., reminders=[every(5, how_many_are_open)])    # a function: agent -> text

A message waits in the log itself, so it is as safe as the log is: with a session it survives a kill
from the moment `send` returns. A message that comes too late for a run is answered in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import token_hex
from threading import RLock
from typing import Any, NamedTuple

from pydantic import PositiveInt

from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Content,
    Mark,
    Message,
    Record,
    RunEnd,
    UserMessage,
    UserOrigin,
    frozen,
)
from ..transcript import Fold, Records

sending = RLock()  # held while something is sent, recorded or delivered


@frozen
class Sent(Mark):
    """A message was sent. It waits here until a record of its own puts it into the conversation."""

    message: UserMessage


@frozen
class Reminded(Mark):
    """A reminder was said. `name` is its text, or the name of its function."""

    name: str


class Reminder(NamedTuple):
    """Says `text` to the model every `n_turns` model calls.

    A plain function takes the agent and returns the text, or "" to say nothing now. The log knows
    it by its name, so two functions need two names.
    """

    n_turns: PositiveInt
    text: str | Callable[[Any], str]

    @property
    def name(self) -> str:
        """Return the name of the function, or the text."""
        return str(getattr(self.text, "__qualname__", self.text))


every = Reminder  # every(10, "text") comes after every 10 model calls


class MessageQueue(Loop):
    """Steers a run with messages from outside, and with reminders that come again and again.

    reminders: each made with `every(n_turns, text)`, or `every(n_turns, function)`.
    """

    reminders: Sequence[Reminder] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [each.name for each in self.reminders]
        if len(names) > len({*names}):
            raise ValueError(f"two reminders have one name, by which the log knows them: {names}")
        if self.log:  # a session may hold messages that a killed process did not deliver
            self._deliver()

    def send(self, content: Content, *, hidden: bool = False) -> None:
        """Tell the model something: in the run that is going on, or else in the next. Thread-safe.

        hidden: the program says this, and not the user.

        Raises OSError if the session's disk is full; the message is kept, so do not send it again.
        """
        if not content or str(content).isspace():
            raise ValueError("the message is empty: say something")
        with sending:
            origin: UserOrigin = "program" if hidden else "sent"
            self.record(Sent(UserMessage(content, origin, token_hex(8))))
            ended = self.conversation.stop_reason or not self.running
            if ended:  # no further request of a run will deliver it
                self._deliver()

    async def context(self) -> list[Message]:
        self._deliver()
        for each in self.reminders:
            if self.fold(TurnsWithout, each.name).turns >= each.n_turns:
                words = each.text(self) if callable(each.text) else each.text
                if words:
                    self.record(Reminded(each.name))
                    self.add_note(words, "reminder")
        return await super().context()

    def record(self, record: Record) -> None:
        with sending:
            super().record(record)
            if isinstance(record, RunEnd):
                self._deliver()

    def _deliver(self) -> None:
        """Put what was sent into the conversation."""
        with sending:
            while waiting := self.fold(Unread).messages:  # a listener may send more
                self.add(waiting[0])


class Unread(Fold):
    """The messages that were sent and are not in the conversation yet."""

    messages: Sequence[UserMessage] = ()

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, Sent):
            self.messages = [*self.messages, record.message]
        elif isinstance(record, UserMessage) and record.sent_id:
            self.messages = [each for each in self.messages if each.sent_id != record.sent_id]


class TurnsWithout(Fold):
    """How many replies came since a reminder was last said, or since the beginning."""

    turns = 0

    def __init__(self, log: Records, reminder: str) -> None:
        super().__init__(log)
        self._reminder = reminder

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, AssistantMessage):
            self.turns += 1
        elif isinstance(record, Reminded) and record.name == self._reminder:
            self.turns = 0
