"""Conversations in and out as the dicts of Chat Completions, which everybody stores.

One wants it to go on with a conversation of another program, to keep one as other programs read it,
or to train and evaluate with it. Images, files, calls and their results are included.

    agent = Agent(llm=..., system_prompt="You know the weather.")
    agent.load_history(from_openai(stored))
    stored = to_openai([SystemMessage(agent.system_text()), *agent.messages])

The system prompt is a setting: `load_history` leaves system messages out, and `agent.messages` has
none. They are what the model sees: older turns of a long conversation are a summary there, and a
call that waits for a person is one that did not run. A Session keeps both.
"""

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from agentloop import (
    Agent,
    FilePart,
    ImagePart,
    Message,
    ScriptedModel,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from agentloop.messages import Part
from agentloop.models.openai import read_openai_reply, write_openai_messages

to_openai = write_openai_messages


def read_part(part: Any) -> Part:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url), **more}}:
            return ImagePart(url=url, extra=more or None)
        case {"type": "file", "file": {"file_data": str(url), **more}}:
            return FilePart(url=url, name=more.get("filename"))
        case {"type": "input_audio", "input_audio": {"data": data, "format": form}}:
            kind = "mpeg" if form == "mp3" else form
            return FilePart(data=base64.b64decode(data), media_type=f"audio/{kind}")
    raise ValueError(f"this is no part of a message that can be read: {part!r:.200}")


def read_content(content: Any) -> str | list[Part]:
    if isinstance(content, list):
        return [read_part(part) for part in content]
    if isinstance(content, str | None):
        return content or ""
    raise ValueError(f"this is no content of a message: {content!r:.200}")


def from_openai(dicts: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Read messages. ValueError: a dict is none, or has a part that no message can hold.

    Results without an id are those of the calls without one, in their order.
    """
    messages = list[Message]()
    names = defaultdict[str, list[str]](list)  # of the calls that have no result yet, by their ids
    for said in dicts:
        match said:
            case {"role": "system" | "developer"}:
                text = UserMessage(read_content(said.get("content"))).text
                messages.append(SystemMessage(text))
            case {"role": "user"}:
                messages.append(UserMessage(read_content(said.get("content"))))
            case {"role": "assistant"}:
                text = UserMessage(read_content(said.get("content"))).text
                reply = read_openai_reply({"choices": [{"message": {**said, "content": text}}]})
                for call in reply.tool_calls:
                    names[call.id].append(call.name)
                messages.append(reply)
            case {"role": "tool"} if said.get("tool_call_id") or names[""]:
                call_id = said.get("tool_call_id") or ""
                called = names[call_id]
                name = called.pop(0) if called else said.get("name", "")
                messages.append(ToolMessage(call_id, name, read_content(said.get("content"))))
            case _:
                raise ValueError(f"this is no message of Chat Completions: {said!r:.200}")
    return messages


def main() -> None:
    function = {"name": "weather", "arguments": '{"city": "Bern"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    stored = [
        {"role": "system", "content": "You know the weather."},
        {"role": "user", "content": "How is the weather in Bern?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    agent = Agent(llm=ScriptedModel("You asked for Bern."), system_prompt="You know the weather.")
    agent.load_history(from_openai(stored))
    system = SystemMessage(agent.system_text())
    print("the same:", to_openai([system, *agent.messages]) == stored)
    print(agent.run_sync("Which city was it?").text)
    print(to_openai(agent.messages)[-1])


if __name__ == "__main__":
    main()
