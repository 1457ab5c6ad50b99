"""Takes messages during a run, and delivers them before the next model call.

Copy with: the core.

    class MyAgent(MessageQueue, Agent): ...

    agent.send("Leave the tests as they are.")            # from any thread
    MyAgent(..., reminders=[every(10, "Keep the list of open points up to date.")])
    MyAgent(..., reminders=[every(5, how_many_are_open)])    # a function: agent -> text

The log itself is the queue: with a session, a message survives a kill as soon as `send` returns. If
it arrives after the last request of a run, the next run answers it:

    result = await agent.run("Tidy up.")
    while result.answered and isinstance(agent.messages[-1], UserMessage):
        result = await agent.run()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, NamedTuple

from pydantic import PositiveInt

from ..events import events_of
from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Content,
    Message,
    UserMessage,
    UserOrigin,
    frozen,
)
from ..transcript import Fold, Mark, Record, Records, RunEnd


@frozen
class Sent(Mark):
    """A message in the queue, until the UserMessage with its `sent_id` follows in the log."""

    message: UserMessage


@frozen
class Reminded(Mark):
    """The model was reminded. `name` is the reminder's text, or the name of its function."""

    name: str


class Reminder(NamedTuple):
    """A text that the model gets after every `n_turns` model calls.

    Instead of a text, you may pass a function (not async). It gets the agent and returns the text,
    or "" to skip this time. Give each function its own name, because the log holds it.
    """

    n_turns: PositiveInt
    text: str | Callable[[Any], str]

    @property
    def name(self) -> str:
        """The name of the function, or the text."""
        return str(getattr(self.text, "__qualname__", self.text))


every = Reminder  # every(10, "text"): after every 10 model calls


class MessageQueue(Loop):
    """Lets other code, and reminders, steer a run.

    reminders: a list of `every(n_turns, text)` or `every(n_turns, function)`.
    """

    reminders: Sequence[Reminder] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [reminder.name for reminder in self.reminders]
        if len(names) > len({*names}):
            raise ValueError(f"two reminders have the same name in the log: rename one of {names}")
        if self.log:  # a process that was killed may have left messages in the session
            self._deliver()

    def send(self, content: Content, *, hidden: bool = False) -> None:
        """Send a message to the model, in this run or the next one. Call it from any thread.

        hidden: whether the message comes from the program and not from the user.

        Raises OSError if the session's disk is full. Don't send the message again: it's in the log,
        and will be saved later.
        """
        if not content or str(content).isspace():
            raise ValueError("the message is empty: pass text or content parts")
        origin: UserOrigin = "program" if hidden else "sent"
        with self.log.lock:  # if a RunEnd comes before the message, nothing else delivers it
            self.record(Sent(UserMessage(content, origin, token_hex(8))))
            ended = self.conversation.stop_reason or not self.running
        if ended:  # the run sends no more requests, which would deliver the message
            self._deliver()

    async def context(self) -> list[Message]:
        self._deliver()
        for reminder in self.reminders:
            if self.fold(TurnsWithout, reminder.name).turns >= reminder.n_turns:
                words = reminder.text(self) if callable(reminder.text) else reminder.text
                if words:
                    self.record(Reminded(reminder.name))
                    self.add_note(words, "reminder")
        return await super().context()

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, RunEnd):
            self._deliver()

    def _deliver(self) -> None:
        """Move the messages from the queue to the conversation."""
        while message := self._record_next():  # a listener may send another one meanwhile
            for event in events_of(message):
                self.emit(event)

    def _record_next(self) -> UserMessage | None:
        """Record the oldest message in the queue, and return it."""
        with self.log.lock:
            for message in self.fold(Unread).messages:
                self.record(message)
                return message
        return None


class Unread(Fold):
    """The messages in the queue, which aren't part of the conversation yet."""

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self._by_id: dict[str, UserMessage] = {}

    @property
    def messages(self) -> list[UserMessage]:
        return list(self._by_id.values())

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, Sent):
            self._by_id[record.message.sent_id] = record.message
        elif isinstance(record, UserMessage):
            self._by_id.pop(record.sent_id, None)


class TurnsWithout(Fold):
    """How many `turns` (replies) there were since a reminder, or since the log began."""

    turns = 0

    def __init__(self, log: Records, reminder: str) -> None:
        super().__init__(log)
        self._reminder = reminder

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, AssistantMessage):
            self.turns += 1
        elif isinstance(record, Reminded) and record.name == self._reminder:
            self.turns = 0
