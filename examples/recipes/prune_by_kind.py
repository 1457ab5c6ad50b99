"""Prunes by kind: outdated results are shortened first, errors and decisions last.

Use the mixin if some results matter longer than others. A result is outdated once the same call was
made again. If a request has more than `room` tokens, a log entry lists the calls whose results and
long arguments are shortened from then on. Requests between two entries share a cached prefix.
"""

import json
from dataclasses import replace

from agentloop import (
    Agent,
    AssistantMessage,
    Mark,
    Message,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolMessage,
    call,
    message_tokens,
    tool,
)
from agentloop.messages import frozen

Calls = tuple[str, ...]  # call ids


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
        """Add the least important calls to `calls`, until half of the room is free."""
        replies = [message for message in messages if isinstance(message, AssistantMessage)]
        seen = messages[: messages.index(replies[-1])] if replies else []
        results = {m.tool_call_id: m for m in seen if isinstance(m, ToolMessage)}
        keys = {c.id: (c.name, c.arguments) for reply in replies for c in reply.tool_calls}
        newest = {key: call_id for call_id, key in keys.items()}

        def importance(call_id: str) -> int:
            if results[call_id].is_error or results[call_id].tool_name in self.decisions:
                return 2
            return 1 if newest[keys[call_id]] == call_id else 0

        for call_id in sorted((id for id in results if id not in calls), key=importance):
            if message_tokens(shorten(messages, calls)) > self.room / 2:
                calls = (*calls, call_id)
        return calls


def shorten(messages: list[Message], calls: Calls) -> list[Message]:
    """Shorten the results and arguments of these calls in the messages."""
    rendered: list[Message] = []
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id in calls:
            message = replace(message, content=short(message.text))
        elif isinstance(message, AssistantMessage) and not message.raw:
            short_calls = [shorten_call(c) if c.id in calls else c for c in message.tool_calls]
            message = replace(message, tool_calls=tuple(short_calls))
        rendered.append(message)
    return rendered


def shorten_call(original: ToolCall) -> ToolCall:
    """Shorten the texts in a call's arguments, which stay a JSON object."""
    items = (original.parsed or {}).items()
    values = {name: short(value) if isinstance(value, str) else value for name, value in items}
    return replace(original, arguments=json.dumps(values))


def short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:50]} [... of {len(text):,} characters]"


@tool("Read a file")
def read(path: str) -> str:
    if path == "lost.txt":
        raise ToolError("lost.txt was moved to found.txt, " + "according to its history, " * 10)
    return f"{path}: " + "a line of it, " * 150


@tool("Write a file")
def write(path: str, text: str) -> str:
    return f"{path} is written."


@tool("Record a decision")
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
    llm = ScriptedModel(*steps, "Done.")
    agent = PruneByKind(llm=llm, tools=[read, write, decide])
    agent.run_sync("Tidy up the files.")
    for message in llm.requests[-1].messages:
        calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
        print(type(message).__name__, message.text[:90], *(c.arguments[:120] for c in calls))
