"""A run as a stream of Anthropic's Messages API: one message, its texts and tool calls as blocks.

One wants it for a client that reads that format. Calls are `server_tool_use`, since they run here;
thinking stays here; a failing run breaks off. See docs.anthropic.com/en/api/messages-streaming
"""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

from agentloop import Agent, Loop, ScriptedModel, events

WHY = {"limit:length": "max_tokens", "refused": "refusal", "needs_approval": "pause_turn"}


def sse(kind: str, **data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


async def anthropic_stream(agent: Loop, prompt: str) -> AsyncIterator[str]:
    """The lines of a run; leaving the generator cancels it."""
    about: dict[str, object] = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant"}
    about |= {"model": agent.llm.model, "content": [], "stop_reason": None, "stop_sequence": None}
    yield sse("message_start", message={**about, "usage": {"input_tokens": 0, "output_tokens": 0}})
    at, writing = 0, False

    def block(what: str, **data: object) -> str:
        return sse(f"content_block_{what}", index=at, **data)

    async with agent.query_stream(prompt) as stream:
        async for event in stream:
            match event:
                case events.TextDeltaEvent(content=text) if writing or text.strip():
                    begin = block("start", content_block={"type": "text", "text": ""})
                    more = block("delta", delta={"type": "text_delta", "text": text})
                    yield more if writing else begin + more
                    writing = True
                case events.ToolCallEvent(tool=name, args=args, tool_call_id=id):
                    use = {"type": "server_tool_use", "id": id, "name": name, "input": {}}
                    typed = {"type": "input_json_delta", "partial_json": json.dumps(args)}
                    yield block("start", content_block=use) + block("delta", delta=typed)
                    yield block("stop")
                    at += 1
                case events.TextEvent() if writing:
                    yield block("stop")
                    at, writing = at + 1, False
        if result := stream.result:
            end = {"stop_reason": WHY.get(result.stop_reason, "end_turn"), "stop_sequence": None}
            used = {name: getattr(result.usage, name) for name in ("input_tokens", "output_tokens")}
            yield sse("message_delta", delta=end, usage=used) + sse("message_stop")


async def main() -> None:
    agent = Agent(llm=ScriptedModel("Hello there."))
    print("".join([lines async for lines in anthropic_stream(agent, "Hello")]), end="")


if __name__ == "__main__":
    asyncio.run(main())
