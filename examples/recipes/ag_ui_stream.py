"""A run as AG-UI events, the protocol between agents and user interfaces such as CopilotKit's.

Use the stream to connect an agent to an existing page. Each AG-UI event is a server-sent event.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

from agentloop import Agent, Loop, ScriptedModel, call, tool
from agentloop import events as e


def line(kind: str, **data: object) -> str:
    return f"data: {json.dumps({'type': kind, **data})}\n\n"


async def ag_ui_stream(agent: Loop, prompt: str, thread: str = "main") -> AsyncIterator[str]:
    """Yield the server-sent events of a run. Source: https://docs.ag-ui.com/concepts/events"""
    run, sent = {"threadId": thread, "runId": uuid4().hex}, {""}
    text = dict[str, str]()  # the id of the streamed message; empty between messages
    yield line("RUN_STARTED", **run)
    try:
        async with agent.query_stream(prompt) as stream:
            async for event in stream:
                match event:
                    case e.TextDeltaEvent(content=delta) if delta:
                        if not text:
                            text = {"messageId": uuid4().hex}
                            yield line("TEXT_MESSAGE_START", **text, role="assistant")
                        yield line("TEXT_MESSAGE_CONTENT", **text, delta=delta)
                    case e.TextEvent(new) | e.FinalResponseEvent(new) if text or new not in sent:
                        if not text:  # not streamed: the text of a done tool or a Stop
                            text = {"messageId": uuid4().hex}
                            yield line("TEXT_MESSAGE_START", **text, role="assistant")
                            yield line("TEXT_MESSAGE_CONTENT", **text, delta=new)
                        yield line("TEXT_MESSAGE_END", **text)
                        text, sent = {}, sent | {new}
                    case e.ToolCallEvent(tool=name, args=args, tool_call_id=id):
                        yield line("TOOL_CALL_START", toolCallId=id, toolCallName=name)
                        yield line("TOOL_CALL_ARGS", toolCallId=id, delta=json.dumps(args))
                        yield line("TOOL_CALL_END", toolCallId=id)
                    case e.ToolResultEvent(result=result, tool_call_id=id):
                        about = {"messageId": uuid4().hex, "toolCallId": id, "role": "tool"}
                        yield line("TOOL_CALL_RESULT", **about, content=result)
        if stream.result:
            yield line("RUN_FINISHED", **run, result={"stopReason": stream.result.stop_reason})
    except Exception as error:  # such as a model error: its text may be confidential
        yield line("RUN_ERROR", message="The run failed.", code=type(error).__name__)


async def main() -> None:
    tools = [tool("Add", name="add")(lambda: "5")]
    agent = Agent(llm=ScriptedModel(call("add"), "It is 5."), tools=tools)
    print(*[chunk async for chunk in ag_ui_stream(agent, "2 + 3?")], sep="", end="")


if __name__ == "__main__":
    asyncio.run(main())
