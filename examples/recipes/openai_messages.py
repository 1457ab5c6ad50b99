"""Conversations in and out as the dicts of Chat Completions, which everybody stores.

One wants it to go on with a conversation of another program, to keep one as other programs read it,
or to train and evaluate with it. Images, files, calls and their results are included.

    agent.load_history(from_openai(stored))
    stored = to_openai(agent.messages)
"""

import base64
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


def read_part(part: Mapping[str, Any]) -> Part:
    match part:
        case {"type": "text", "text": text}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": url, **more}}:
            return ImagePart(url=url, extra=more or None)
        case {"type": "file", "file": {"file_data": url, **more}}:
            return FilePart(url=url, name=more.get("filename"))
        case {"type": "input_audio", "input_audio": {"data": data, "format": form}}:
            kind = "mpeg" if form == "mp3" else form
            return FilePart(data=base64.b64decode(data), media_type=f"audio/{kind}")
    raise ValueError(f"this is no part of a message that can be read: {part!r:.200}")


def from_openai(dicts: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Read messages. ValueError: a dict is none, or has a part that no message can hold."""
    messages = list[Message]()
    names = dict[str, str]()  # of the tools that were called, by the call's id
    for said in dicts:
        content: Any = said.get("content") or ""
        if not isinstance(content, str):
            content = [read_part(part) for part in content]
        match said:
            case {"role": "system" | "developer"}:
                messages.append(SystemMessage(UserMessage(content).text))
            case {"role": "user"}:
                messages.append(UserMessage(content))
            case {"role": "assistant"}:
                text = {"content": UserMessage(content).text}
                reply = read_openai_reply({"choices": [{"message": {**said, **text}}]})
                names |= {call.id: call.name for call in reply.tool_calls}
                messages.append(reply)
            case {"role": "tool", "tool_call_id": call_id}:
                name = names.get(call_id) or said.get("name", "")
                messages.append(ToolMessage(call_id, name, content))
            case _:
                raise ValueError(f"this is no message of Chat Completions: {said!r:.200}")
    return messages


def main() -> None:
    function = {"name": "weather", "arguments": '{"city": "Bern"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    stored = [
        {"role": "user", "content": "How is the weather in Bern?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    agent = Agent(llm=ScriptedModel("You asked for Bern."))
    agent.load_history(from_openai(stored))
    print("the same:", to_openai(agent.messages) == stored)
    print(agent.run_sync("Which city was it?").text)
    print(to_openai(agent.messages)[-1])


if __name__ == "__main__":
    main()
