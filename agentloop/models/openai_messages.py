"""Conversations of other programs: messages as dicts of OpenAI's Chat Completions.

Copy with: models/completions.py and its imports.

    agent.load_history(from_openai([{"role": "user", "content": "Where is Ulm?"}]))
    dicts = to_openai(agent.messages)

Source: https://platform.openai.com/docs/api-reference/chat
"""

import base64
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import BadResponse
from ..messages import (
    JSON,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
    text_of,
)
from .completions import read_openai_reply, write_openai_messages
from .wire import drop_none, first_text, storable


def to_openai(messages: Sequence[Message]) -> list[JSON]:
    """Turn messages into dicts of Chat Completions, the format that most programs store.

    The system prompt is a setting and not in `agent.messages`: to store it, add
    `SystemMessage(agent.system_text())`.
    """
    return write_openai_messages(messages)


def from_openai(messages: Iterable[Mapping[str, Any] | Message]) -> list[Message]:
    """Turn dicts of Chat Completions into messages. What is a message already stays as it is.

    If calls and their results have no ids, they're matched in order. Raises ValueError if a message
    or a part is invalid.
    """
    read = list[Message]()
    names = defaultdict[str, list[str]](list)  # tools of the calls without a result, by call id
    for message in messages:
        if isinstance(message, Message):
            read.append(message)
            continue
        try:
            read.append(_read_message(message, names))
        except (TypeError, BadResponse) as error:
            raise ValueError(f"this isn't a Chat Completions message: {message!r:.200}") from error
    return read


def _read_message(message: Any, names: Mapping[str, list[str]]) -> Message:
    match message:
        case {"role": "system" | "developer"}:
            return SystemMessage(text_of(_read_content(message)))
        case {"role": "user"}:
            return UserMessage(_read_content(message))
        case {"role": "assistant"}:
            own = {**message, "content": text_of(_read_content(message))}
            reply = read_openai_reply({"choices": [{"message": own}]})
            for call in reply.tool_calls:
                names[call.id].append(call.name)
            return storable(reply)
        case {"role": "tool"} if message.get("tool_call_id") or names[""]:
            call_id = first_text(message, "tool_call_id")
            called = names[call_id]
            name = called.pop(0) if called else first_text(message, "name")
            return ToolMessage(call_id, name, _read_content(message))
        case _:
            raise ValueError(f"this isn't a Chat Completions message: {message!r:.200}")


def _read_content(message: JSON) -> Content:
    match message.get("content"):
        case None:
            return ""
        case str(text):
            return text
        case [*parts]:
            return [*map(_read_part, parts)]
        case content:
            raise ValueError(
                f"the content of a message must be text or parts, not {content!r:.200}"
            )


def _read_part(part: Any) -> Part:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url)} as image}:
            return ImagePart(url=url, extra=drop_none({"detail": image.get("detail")}) or None)
        case {"type": "file", "file": {"file_data": str(url)} as file}:
            return FilePart(url=url, name=file.get("filename"))
        case {"type": "input_audio", "input_audio": {"data": data, "format": form}}:
            media_type = "audio/mpeg" if form == "mp3" else f"audio/{form}"
            return FilePart(data=base64.b64decode(data), media_type=media_type)
        case _:
            raise ValueError(f"this isn't a part of a message: {part!r:.200}")
