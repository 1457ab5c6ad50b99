"""A log entry of your own: something that happened in your application, and what it changes.

Use an entry for what a conversation has to remember without telling the model. It's saved with the
session, and says itself what it does. Here a desk closes a ticket: from then on, the model reads
one sentence in place of the messages before, and the log keeps them all. After a restart, the entry
does the same again. An entry that raises, or that a program doesn't know, has no effect.
"""

from tempfile import TemporaryDirectory

from agentloop import Agent, Mark, ScriptedModel, Session, UserMessage
from agentloop.messages import frozen
from agentloop.transcript import Conversation


@frozen
class TicketClosed(Mark):
    """A ticket was closed. Fields have JSON types."""

    number: int
    outcome: str

    def apply(self, conversation: Conversation) -> None:
        text = f"Ticket {self.number} is closed: {self.outcome}"
        conversation.show([UserMessage(text, "program")])


class Desk(Session, Agent):
    def close_ticket(self, number: int, outcome: str) -> None:
        self.refuse_if_busy()  # not during a run, whose calls are still open
        self.record(TicketClosed(number, outcome))

    @property
    def closed(self) -> list[int]:
        return [entry.number for entry in self.log if isinstance(entry, TicketClosed)]


def main(folder: str) -> None:
    llm = ScriptedModel("Try to restart it.", "I have ordered a new one.", "Any time.")
    with Desk(llm=llm, session="ada", session_dir=folder) as desk:
        desk.run_sync("The printer is broken.")
        desk.run_sync("It still is.")
        desk.close_ticket(7, "a new printer is on its way.")
    with Desk(llm=llm, session="ada", session_dir=folder) as desk:  # another process
        desk.run_sync("Thank you!")
        print(*[message.text for message in llm.requests[-1].messages], sep="\n")
        print("closed:", desk.closed, "in a log of", len(desk.log), "records")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(folder)
