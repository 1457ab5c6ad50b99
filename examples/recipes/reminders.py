"""Reminders: what the model is told again every few turns, and once before its turns run out.

One wants them in long runs, where what was said at the beginning fades. Both are appended to the
conversation as hidden messages, so nothing that the provider has cached changes. The first kind is
`MessageQueue`'s; the second reads its own agent's log, so it is a mixin, which a fork takes along.
"""

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Message,
    MessageQueue,
    ScriptedModel,
    UserMessage,
    every,
    tool,
)
from agentloop.models.scripted import call

HURRY = "There are {} turns left in this run: come to an end."


class LastTurns(Loop):
    """last_turns: at how many turns before the limit the model is told of it."""

    last_turns: int = 3

    async def context(self) -> list[Message]:
        text, run = HURRY.format(self.last_turns), self.conversation.run
        turns = sum(isinstance(record, AssistantMessage) for record in run)
        told = any(isinstance(record, UserMessage) and record.text == text for record in run)
        if turns >= self.max_iterations - self.last_turns and not told:
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
    reader = Reader(llm=ScriptedModel(*pages, "It rains in all that I have read."))
    print(reader.run_sync("In which chapter does it not rain?"))
    for message in reader.messages:
        if message.text:
            print(message.text)
