"""One reply, written the way OpenAI, Anthropic and Google do, whole and as a stream of events.

Copy with: nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

JSON: TypeAlias = dict[str, Any]


class Reply(NamedTuple):
    """What a model says: words, calls as (id, tool, arguments). The counts are of tokens."""

    words: list[str]
    calls: list[tuple[str, str, JSON]]
    tokens_in: int
    tokens_out: int


def openai(reply: Reply) -> tuple[JSON, list[JSON]]:
    """Source: https://platform.openai.com/docs/api-reference/chat"""
    calls: list[JSON] = []
    for call_id, name, value in reply.calls:
        function = {"name": name, "arguments": json.dumps(value)}
        calls.append({"id": call_id, "type": "function", "function": function})
    message: JSON = {"role": "assistant", "content": "".join(reply.words) or None}
    message |= {"tool_calls": calls} if calls else {}
    deltas: list[JSON] = [{"content": word} for word in reply.words]
    for index, call in enumerate(calls):
        head, tail = halves(call["function"]["arguments"])
        first = call | {"index": index, "function": call["function"] | {"arguments": head}}
        second = {"index": index, "function": {"arguments": tail}}
        deltas += [{"tool_calls": [first]}, {"tool_calls": [second]}]
    finish = {"finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": reply.tokens_in, "completion_tokens": reply.tokens_out}
    events: list[JSON] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events += [{"choices": [{"index": 0, "delta": {}} | finish]}, {"choices": [], "usage": usage}]
    return {"choices": [{"index": 0, "message": message} | finish], "usage": usage}, events


def anthropic(reply: Reply) -> tuple[JSON, list[JSON]]:
    """Source: https://platform.claude.com/docs/en/api/messages"""
    blocks: list[JSON] = []
    events: list[JSON] = []

    def add(block: JSON, empty: JSON, kind: str, field: str, pieces: Sequence[str]) -> None:
        at = {"index": len(blocks)}
        events.append({"type": "content_block_start", "content_block": block | empty} | at)
        deltas = [{"type": kind, field: piece} for piece in pieces]
        events.extend({"type": "content_block_delta", "delta": delta} | at for delta in deltas)
        events.append({"type": "content_block_stop"} | at)
        blocks.append(block)

    if reply.words:
        block: JSON = {"type": "text", "text": "".join(reply.words)}
        add(block, {"text": ""}, "text_delta", "text", reply.words)
    for call_id, name, value in reply.calls:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": value}
        add(block, {"input": {}}, "input_json_delta", "partial_json", halves(json.dumps(value)))
    end = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": reply.tokens_in, "output_tokens": reply.tokens_out}
    message = {"type": "message", "role": "assistant", "content": blocks, "usage": usage} | end
    start = {"type": "message_start", "message": message | {"content": [], "stop_reason": None}}
    last = {"type": "message_delta", "delta": end, "usage": usage}
    return message, [start, *events, last, {"type": "message_stop"}]


def google(reply: Reply) -> tuple[JSON, list[JSON]]:
    """Source: https://ai.google.dev/api/generate-content"""
    calls: list[JSON] = [
        {"functionCall": {"id": call_id, "name": name, "args": value}}
        for call_id, name, value in reply.calls
    ]
    texts = [{"text": word} for word in reply.words]
    text = [{"text": "".join(reply.words)}] if reply.words else []
    counts = {"promptTokenCount": reply.tokens_in, "candidatesTokenCount": reply.tokens_out}

    def chunk(*parts: JSON, **end: str) -> JSON:
        return {"candidates": [{"content": {"role": "model", "parts": parts}} | end]}

    def last(*parts: JSON) -> JSON:
        return chunk(*parts, finishReason="STOP") | {"usageMetadata": counts}

    return last(*text, *calls), [*map(chunk, [*texts, *calls]), last()]


def halves(text: str) -> tuple[str, str]:
    """The text in two pieces, as arguments may come."""
    return text[: len(text) // 2], text[len(text) // 2 :]


WIRES: dict[str, Callable[[Reply], tuple[JSON, list[JSON]]]] = {  # by the end of a request's path
    "/chat/completions": openai,
    "/v1/messages": anthropic,
    ":generateContent": google,
    ":streamGenerateContent": google,
}
