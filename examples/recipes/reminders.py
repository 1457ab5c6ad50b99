"""Reminders: messages to the model every few turns, and once before the turn limit.

Use reminders in long runs, where models lose sight of the original instructions. Both kinds of
reminders are appended to the conversation as hidden messages, so the provider's cache stays valid.
The first kind is a setting of `MessageQueue`. The second kind depends on the log of its agent and
is therefore a mixin, which forks inherit.
"""

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Message,
    MessageQueue,
    ScriptedModel,
    UserMessage,
    call,
    every,
    tool,
)

HURRY = "There are {} turns left in this run: finish your work."


class LastTurns(Loop):
    """last_turns: number of turns before the limit at which the reminder is sent."""

    last_turns: int = 3

    async def context(self) -> list[Message]:
        text, run = HURRY.format(self.last_turns), self.conversation.run
        turns = sum(isinstance(record, AssistantMessage) for record in run)
        sent = any(isinstance(record, UserMessage) and record.text == text for record in run)
        if turns >= self.max_iterations - self.last_turns and not sent:
            self.add_note(text)
        return await super().context()


@tool("Read a chapter")
def read(chapter: int) -> str:
    return f"Chapter {chapter}: it rains."


class Reader(LastTurns, MessageQueue, Agent):
    tools = (read,)
    max_iterations = 10
    reminders = (every(4, "The question is where it does not rain."),)


if __name__ == "__main__":
    pages = [call("read", chapter=n) for n in range(1, 9)]
    reader = Reader(llm=ScriptedModel(*pages, "It rains in every chapter so far."))
    print(reader.run_sync("In which chapter does it not rain?"))
    for message in reader.messages:
        if message.text:
            print(message.text)
