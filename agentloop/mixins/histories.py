"""Gives an agent another history: messages from elsewhere, or none.

Copy with: the core.

    agent.load_history([UserMessage("I am Ada."), AssistantMessage("Hello, Ada.")])
    agent.clear_history()
"""

from collections.abc import Sequence
from typing import NoReturn, Self, cast

from ..loop import Loop
from ..messages import Message, SystemMessage
from ..transcript import Conversation, Reset, ToolStart


class Histories(Loop):
    """Starts another history. The file of a session keeps the lines of the old one.

    Two agents never share a log, so `copy.copy(agent)` is `agent.fork()`.
    """

    def load_history(self, messages: Sequence[Message]) -> None:
        """Continue with these messages instead of the current history.

        System messages are left out, because the system prompt is a setting. If a call has no
        result, it gets one which says that its outcome is unknown, because another program may have
        run it.

        Raises AgentBusy during a run, TypeError for anything but messages, and OSError if the
        session's disk is full. The log then has either the old history or all the messages, which
        will be saved later.
        """
        for message in messages:
            if not isinstance(cast(object, message), Message):
                raise TypeError(
                    "load_history() takes a list of messages, such as [UserMessage('hi')], "
                    f"not {messages!r:.80}; from_openai() converts dicts of Chat Completions"
                )
        history = Conversation(messages).catch_up()
        for state in history.open_calls:
            ToolStart(state.call.id).apply(history)
        with self.log.lock:  # what another thread sends or runs meanwhile comes after these
            self.refuse_if_busy()
            self.record(Reset())
            unsaved: OSError | None = None
            for message in history.messages:
                try:
                    if not isinstance(message, SystemMessage):
                        self.record(message)
                except OSError as error:  # a call whose result is left out would run again
                    unsaved = error
        if unsaved:
            raise unsaved

    def clear_history(self) -> None:
        """Start a new, empty history."""
        self.load_history([])

    def __copy__(self) -> Self:
        return self.fork()

    def __deepcopy__(self, memo: object) -> Self:
        return self.fork()

    def __reduce__(self) -> NoReturn:
        raise TypeError("an agent can't be pickled: save its log with Session, or fork() it")
