"""A run as AG-UI events, the protocol between agents and user interfaces such as CopilotKit's.

Use the stream to connect an agent to an existing page. Each AG-UI event is a server-sent event. If
a call awaits approval or the user's answer, the run ends with interrupts, also for the calls of
sub-agents. The next request has the page's answers in `resume`, and continues the run:

    {"interruptId": "call_1", "status": "resolved", "payload": {"verdict": "allow"}}
    {"interruptId": "call_1", "status": "resolved",
     "payload": {"verdict": "allow", "arguments": {"amount": 50}}}
    {"interruptId": "call_1", "status": "resolved",
     "payload": {"verdict": "respond", "note": "Use the other account."}}

The payload for a question is the answer. "cancelled" denies a call.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from agentloop import Agent, ScriptedModel, ToolCall, call, tool
from agentloop import events as e
from agentloop.mixins.approval import Approval

VERDICTS = {"type": "string", "enum": ["allow", "deny", "respond"]}
REVIEW = {  # the answer that a page gives to a call awaiting approval
    "type": "object",
    "properties": {
        "verdict": VERDICTS,
        "note": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["verdict"],
}
ASKING = ("needs_approval", "needs_answer")


def line(kind: str, **data: object) -> str:
    return f"data: {json.dumps({'type': kind, **data})}\n\n"


def asks_approval(agent: Agent, waiting: ToolCall) -> bool:
    awaits = agent.conversation.states[waiting.id].awaits
    return awaits is not None and awaits.stop_reason == "needs_approval"


def interrupt(agent: Agent, waiting: ToolCall) -> dict[str, object]:
    """Describe a pending call. Source: https://docs.ag-ui.com/concepts/interrupts"""
    data = {"id": waiting.id, "toolCallId": waiting.id.split("/")[0]}
    if asks_approval(agent, waiting):
        message = f"{waiting.name}({waiting.arguments})"
        return data | {"reason": "needs_approval", "message": message, "responseSchema": REVIEW}
    question = (waiting.parsed or {}).get("question") or waiting.arguments
    return data | {"reason": "needs_answer", "message": question}


def answer(agent: Agent, resume: Sequence[Mapping[str, Any]]) -> None:
    """Decide or answer the pending calls. Raises ValueError for an id that isn't pending."""
    pending = {waiting.id: waiting for waiting in agent.pending}
    for entry in resume:
        waiting = pending.get(entry["interruptId"])
        payload = entry.get("payload") if entry["status"] == "resolved" else None
        if waiting is None:
            raise ValueError("this interrupt isn't pending")
        if not asks_approval(agent, waiting):
            agent.answer(waiting.id, "The user gave no answer." if payload is None else payload)
            continue
        review = payload or {"verdict": "deny"}
        verdict, note = review["verdict"], str(review.get("note", ""))
        agent.decide(waiting.id, verdict, note, arguments=review.get("arguments"))


async def ag_ui_stream(
    agent: Agent,
    prompt: str | None,
    thread: str = "main",
    resume: Sequence[Mapping[str, Any]] = (),
) -> AsyncIterator[str]:
    """Yield the server-sent events of a run. Source: https://docs.ag-ui.com/concepts/events"""
    run, sent = {"threadId": thread, "runId": uuid4().hex}, {""}
    text = dict[str, str]()  # the id of the streamed message; empty between messages
    yield line("RUN_STARTED", **run)
    try:
        answer(agent, resume)
        async with agent.query_stream(None if resume else prompt) as stream:
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
        if end := stream.result:
            outcome: dict[str, object] = {"type": "success"}
            if end.stop_reason in ASKING and end.pending:
                interrupts = [interrupt(agent, waiting) for waiting in end.pending]
                outcome = {"type": "interrupt", "interrupts": interrupts}
            reason = {"stopReason": end.stop_reason}
            yield line("RUN_FINISHED", **run, result=reason, outcome=outcome)
    except Exception as error:  # such as a model error: its text may be confidential
        yield line("RUN_ERROR", message="The run failed.", code=type(error).__name__)


class Clerk(Approval, Agent): ...


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


async def main() -> None:
    llm = ScriptedModel(call("pay", amount=500), lambda messages, tools: messages[-1].text)
    agent = Clerk(llm=llm, tools=[pay])
    print(*[chunk async for chunk in ag_ui_stream(agent, "Pay 500.")], sep="", end="")
    [waiting] = agent.pending
    review = {"verdict": "allow", "arguments": {"amount": 50}}
    resume = [{"interruptId": waiting.id, "status": "resolved", "payload": review}]
    print(*[chunk async for chunk in ag_ui_stream(agent, None, resume=resume)], sep="", end="")


if __name__ == "__main__":
    asyncio.run(main())
