"""A run as a stream of Anthropic's Messages API: one message with texts and tool calls as blocks.

Use the stream for clients of the Messages API. Calls are `server_tool_use`: already executed here.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

from agentloop import Agent, Loop, ScriptedModel
from agentloop import events as e

STOPS = {"limit:length": "max_tokens", "refused": "refusal", "needs_approval": "pause_turn"}


def sse(kind: str, **data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


async def anthropic_stream(agent: Loop, prompt: str) -> AsyncIterator[str]:
    """Yield the events of a run. Source: https://docs.anthropic.com/en/api/messages-streaming"""
    about: dict[str, object] = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant"}
    about |= {"model": agent.llm.model, "content": [], "stop_reason": None, "stop_sequence": None}
    yield sse("message_start", message={**about, "usage": {"input_tokens": 0, "output_tokens": 0}})
    at, begun, sent = 0, False, {""}

    def part(kind: str, **data: object) -> str:
        return sse(f"content_block_{kind}", index=at, **data)

    async with agent.query_stream(prompt) as stream:
        async for event in stream:
            match event:
                case e.TextDeltaEvent(content=text) if begun or text.strip():
                    if not begun:
                        yield part("start", content_block={"type": "text", "text": ""})
                    yield part("delta", delta={"type": "text_delta", "text": text})
                    begun = True
                case e.ToolCallEvent(tool=name, args=args, tool_call_id=id):
                    use = {"type": "server_tool_use", "id": id, "name": name, "input": {}}
                    got = {"type": "input_json_delta", "partial_json": json.dumps(args)}
                    yield part("start", content_block=use) + part("delta", delta=got) + part("stop")
                    at += 1
                case e.TextEvent(text) | e.FinalResponseEvent(text) if begun or text not in sent:
                    if not begun:  # not streamed: the text of a done tool or a Stop
                        yield part("start", content_block={"type": "text", "text": text})
                    yield part("stop")
                    at, begun, sent = at + 1, False, sent | {text}
        if result := stream.result:
            end = {"stop_reason": STOPS.get(result.stop_reason, "end_turn"), "stop_sequence": None}
            used = {name: getattr(result.usage, name) for name in ("input_tokens", "output_tokens")}
            yield sse("message_delta", delta=end, usage=used) + sse("message_stop")


async def main() -> None:
    print(*[s async for s in anthropic_stream(Agent(llm=ScriptedModel("Hi.")), "Hello")], sep="")


if __name__ == "__main__":
    asyncio.run(main())
