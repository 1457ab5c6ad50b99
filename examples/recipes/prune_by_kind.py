"""Prunes by kind: what was read again later goes first, errors and decisions go last.

One wants it where some results matter longer than others. When a request has more than `room`
tokens, a mark in the log names the calls that are short from then on, with their long arguments.
Requests between two marks begin alike, so that the provider's cache serves them.
"""

import json
from dataclasses import replace

from agentloop import Agent, AssistantMessage, Message, ScriptedModel, ToolError, ToolMessage, tool
from agentloop.common.tokens import message_tokens
from agentloop.messages import Mark, ToolCall, frozen
from agentloop.models.scripted import call

Calls = tuple[str, ...]  # their ids


@frozen
class Shortened(Mark):
    calls: Calls = ()


class PruneByKind(Agent):
    room: int = 2_000
    decisions: tuple[str, ...] = ("decide",)  # tools whose results stay longer

    async def context(self) -> list[Message]:
        messages = await super().context()
        marks = [record for record in self.log if isinstance(record, Shortened)]
        calls = marks[-1].calls if marks else ()
        if message_tokens(shorten(messages, calls)) > self.room:
            more = self.with_more(messages, calls)
            if more != calls:
                self.record(Shortened(calls=more))
            calls = more
        return shorten(messages, calls)

    def with_more(self, messages: list[Message], calls: Calls) -> Calls:
        """Add the calls that matter least, until half of the room is free."""
        replies = [message for message in messages if isinstance(message, AssistantMessage)]
        seen = messages[: messages.index(replies[-1])] if replies else []
        results = {m.tool_call_id: m for m in seen if isinstance(m, ToolMessage)}
        asked = {each.id: (each.name, each.arguments) for m in replies for each in m.tool_calls}
        newest = {question: call_id for call_id, question in asked.items()}

        def importance(call_id: str) -> int:
            if results[call_id].is_error or results[call_id].tool_name in self.decisions:
                return 2
            return 1 if newest[asked[call_id]] == call_id else 0

        for call_id in sorted((each for each in results if each not in calls), key=importance):
            if message_tokens(shorten(messages, calls)) > self.room / 2:
                calls = (*calls, call_id)
        return calls


def shorten(messages: list[Message], calls: Calls) -> list[Message]:
    """Return the messages, with short texts in the results and arguments of these calls."""
    shown: list[Message] = []
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id in calls:
            message = replace(message, content=short(message.text))
        elif isinstance(message, AssistantMessage) and not message.raw:
            made = [with_short_arguments(e) if e.id in calls else e for e in message.tool_calls]
            message = replace(message, tool_calls=tuple(made))
        shown.append(message)
    return shown


def with_short_arguments(made: ToolCall) -> ToolCall:
    """Return a call whose arguments are short texts, and still a JSON object."""
    items = (made.parsed or {}).items()
    values = {name: short(value) if isinstance(value, str) else value for name, value in items}
    return replace(made, arguments=json.dumps(values))


def short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:50]} [... {len(text):,} characters stood here]"


@tool("Read a file")
def read(path: str) -> str:
    if path == "lost.txt":
        raise ToolError("lost.txt was moved to found.txt, " + "as its history says, " * 10)
    return f"{path}: " + "a line of it, " * 150


@tool("Write a file")
def write(path: str, text: str) -> str:
    return f"{path} is written."


@tool("Decide something")
def decide(what: str) -> str:
    return f"From now on: {what}. " + "This was discussed at length. " * 10


if __name__ == "__main__":
    steps = [
        call("read", path="a.txt"),
        call("decide", what="use tabs"),
        call("read", path="b.txt"),
    ]
    steps += [call("read", path="lost.txt"), call("write", path="c.txt", text="a line, " * 200)]
    steps += [call("read", path="a.txt"), call("read", path="d.txt"), call("read", path="e.txt")]
    agent = PruneByKind(llm=ScriptedModel(*steps, "Done."), tools=[read, write, decide])
    agent.run_sync("Bring the files into order.")
    for message in agent.llm.requests[-1].messages:
        calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
        print(type(message).__name__, message.text[:90], *(each.arguments[:120] for each in calls))
