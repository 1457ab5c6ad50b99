"""Takes messages while a run is going on, and shows them before the next model call.

Copy with: the core.

    agent.send("Leave the tests as they are.")            # from anywhere, any thread
    MyAgent(..., reminders=[every(10, "Keep the list of open points up to date.")])

A message waits in the log itself, so it is as safe as the log is: with a session it survives a kill
from the moment `send` returns. One that comes too late for a run opens the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import field, replace
from typing import NamedTuple
from uuid import uuid4

from ..events import HiddenUserMessageEvent
from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Content,
    Message,
    Record,
    RunEnd,
    RunStart,
    Unknown,
    UserMessage,
    from_dict,
    to_dict,
)
from ..runs import recording

logger = logging.getLogger("agentloop")


class Reminder(NamedTuple):
    """What to remind the model of, each time that it has had so many turns without it."""

    n_turns: int
    text: str | Callable[[], str | None]


def every(n_turns: int, text: str | Callable[[], str | None]) -> Reminder:
    """A reminder after every `n_turns` model calls: a text, or what makes one (None: not now)."""
    if n_turns < 1:
        raise ValueError(f"a reminder comes every 1 or more turns, not {n_turns}")
    return Reminder(n_turns, text)


class Inbox(Loop):
    """Steers a run from outside, with messages and with reminders on schedule.

    reminders: each made with `every(n_turns, text)`. One that raises is skipped.
    delivering: whether messages are being delivered just now.
    """

    reminders: Sequence[Reminder] = ()
    delivering: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._deliver()  # what a session holds that a killed process did not come to

    def send(self, content: Content, *, hidden: bool = False) -> None:
        """Tell the model something: in the run that is going on, else in the next. Thread-safe.

        `hidden`: as a reminder of the program, rather than as the user's words. OSError: the
        session's disk is full; the message is kept, so do not send it again. What a signal handler
        sends while a record is being written is in the file when that record is.
        """
        message = UserMessage(content, hidden=hidden)
        if not message.content or (isinstance(content, str) and not content.strip()):
            raise ValueError("the message is empty: say something")
        with recording:
            sent = {"type": "sent", "id": uuid4().hex, "message": to_dict(message)}
            self.record(Unknown(sent))
            if not self._goes_on():
                self._deliver()

    async def context(self) -> list[Message]:
        for message in self._deliver():
            if message.hidden:
                self.emit(HiddenUserMessageEvent(message.text))
        for at, reminder in enumerate(self.reminders):
            is_due = turns_without(self.log, at) >= reminder.n_turns
            if is_due and (text := text_now(reminder)):
                self.tell(text, reminder=at)
        return await super().context()

    def record(self, record: Record) -> None:
        with recording if isinstance(record, RunStart | RunEnd) else nullcontext():
            super().record(record)
            if isinstance(record, RunEnd):
                self._deliver()

    def _goes_on(self) -> bool:
        """Whether a run is going on that will still look, at its next model call or at its end."""
        if self._run is None or not self._run.goes_on():
            return False
        marks = (record for record in reversed(self.log) if isinstance(record, RunStart | RunEnd))
        return isinstance(next(marks, None), RunStart)

    def _deliver(self) -> list[UserMessage]:
        """Put what was sent into the conversation."""
        messages: list[UserMessage] = []
        with recording:
            while not self.delivering and unread(self.log):  # a signal handler may send meanwhile
                self.delivering = True
                try:
                    for message in unread(self.log):
                        self.record(message)
                        messages.append(message)
                finally:
                    self.delivering = False
        return messages


def unread(log: Sequence[Record]) -> list[UserMessage]:
    """The messages that were sent and do not stand in the conversation yet."""
    read = {str((r.extra or {}).get("sent")) for r in log if isinstance(r, UserMessage)}
    sent = [r.data for r in log if isinstance(r, Unknown) and r.data.get("type") == "sent"]
    messages: list[UserMessage] = []
    for data in sent:
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # a damaged line
            message, name = from_dict(data["message"]), str(data["id"])
            if isinstance(message, UserMessage) and name not in read:
                messages.append(replace(message, extra={"sent": name}))
    return messages


def text_now(reminder: Reminder) -> str | None:
    """What a reminder says now, if anything; nothing if it fails."""
    try:
        return reminder.text if isinstance(reminder.text, str) else reminder.text()
    except Exception:
        logger.exception("a reminder failed, and is left out")
        return None


def turns_without(log: Sequence[Record], reminder: int) -> int:
    """How many replies there are since this reminder came last, or since the beginning."""
    turns = 0
    for record in reversed(log):
        if isinstance(record, UserMessage) and (record.extra or {}).get("reminder") == reminder:
            break
        turns += isinstance(record, AssistantMessage)
    return turns
