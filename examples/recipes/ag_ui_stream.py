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

`python ag_ui_stream.py serve` serves an agent at localhost:8000, for
`new HttpAgent({url: "http://localhost:8000/"})` of @ag-ui/client. Put a login in front.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, Field

from agentloop import Agent, Message, ScriptedModel, ToolCall, call, tool
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
    data: dict[str, object] = {"id": waiting.id, "toolCallId": waiting.id.split("/")[0]}
    if asks_approval(agent, waiting):
        message = f"{waiting.name}({waiting.arguments})"
        return data | {"reason": "needs_approval", "message": message, "responseSchema": REVIEW}
    question = (waiting.parsed or {}).get("question") or waiting.arguments
    return data | {"reason": "needs_answer", "message": question}


def answer(agent: Agent, resume: Sequence[Mapping[str, Any]]) -> None:
    """Decide or answer the pending calls.

    Raises ValueError for an id that isn't pending, and for invalid arguments. The page may then
    send all its answers again: those that had an effect aren't repeated.
    """
    for entry in resume:
        pending = {waiting.id: waiting for waiting in agent.pending}
        waiting = pending.get(entry["interruptId"])
        state = agent.conversation.states.get(entry["interruptId"])
        payload = entry.get("payload") if entry["status"] == "resolved" else None
        if waiting is None:
            if state is None or state.start or state.result:
                raise ValueError("this interrupt isn't pending")
            continue  # it was decided before, but the run hasn't continued
        if not asks_approval(agent, waiting):
            agent.answer(waiting.id, "The user gave no answer." if payload is None else payload)
            continue
        review = payload or {"verdict": "deny"}
        verdict, note = review["verdict"], str(review.get("note", ""))
        agent.decide(waiting.id, verdict, note, arguments=review.get("arguments"))


def call_lines(call_id: str, name: str, arguments: object) -> Iterator[str]:
    yield line("TOOL_CALL_START", toolCallId=call_id, toolCallName=name)
    yield line("TOOL_CALL_ARGS", toolCallId=call_id, delta=json.dumps(arguments))
    yield line("TOOL_CALL_END", toolCallId=call_id)


def result_line(call_id: str, text: str) -> str:
    about = {"messageId": uuid4().hex, "toolCallId": call_id, "role": "tool"}
    return line("TOOL_CALL_RESULT", **about, content=text)


async def ag_ui_stream(
    agent: Agent,
    prompt: str | None,
    thread: str = "main",
    resume: Sequence[Mapping[str, Any]] = (),
    run_id: str = "",
) -> AsyncIterator[str]:
    """Yield the server-sent events of a run. Source: https://docs.ag-ui.com/concepts/events"""
    run, sent = {"threadId": thread, "runId": run_id or uuid4().hex}, {""}
    text = dict[str, str]()  # the id of the streamed message; empty between messages
    yield line("RUN_STARTED", **run)
    try:
        try:
            answer(agent, resume)
        except ValueError as error:  # about what the page has sent
            yield line("RUN_ERROR", message=str(error), code="invalid_answer")
            return
        known = {entry["interruptId"].split("/")[0] for entry in resume}  # calls the page has
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
                    case e.ToolCallEvent(name, args, id) if id not in known:
                        for part in call_lines(id, name, args):
                            yield part
                        known.add(id)
                    case e.ToolResultEvent(result=content, tool_call_id=id):
                        yield result_line(id, content)
        if end := stream.result:
            outcome: dict[str, object] = {"type": "success"}
            if end.stop_reason in ASKING and end.pending:
                for waiting in end.pending:  # the page shows what it decides on
                    if waiting.id.split("/")[0] not in known:
                        for part in call_lines(waiting.id, waiting.name, waiting.parsed):
                            yield part
                interrupts = [interrupt(agent, waiting) for waiting in end.pending]
                outcome = {"type": "interrupt", "interrupts": interrupts}
            reason = {"stopReason": end.stop_reason}
            yield line("RUN_FINISHED", **run, result=reason, outcome=outcome)
    except Exception as error:  # such as a model error: its text may be confidential
        yield line("RUN_ERROR", message="The run failed.", code=type(error).__name__)


class Posted(BaseModel):
    """A message of a page."""

    role: str
    content: Any = ""


class Answer(BaseModel):
    interruptId: str
    status: str
    payload: Any = None


class RunInput(BaseModel):
    """What a page sends. Source: https://docs.ag-ui.com/sdk/js/core/types"""

    threadId: str
    runId: str
    messages: list[Posted] = Field(min_length=1)
    resume: list[Answer] | None = None


def application(template: Agent) -> Any:
    """Make a FastAPI application. Each thread is a fork of the template, kept in memory."""
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    app, threads = FastAPI(), dict[str, Agent]()

    @app.post("/")
    async def run(request: RunInput) -> StreamingResponse:
        """Run a thread. The agent has its history, so only the newest message is read."""
        thread, newest = request.threadId, request.messages[-1]
        agent = threads.setdefault(thread, template.fork())
        prompt = str(newest.content) if newest.role == "user" else None
        resume = [entry.model_dump() for entry in request.resume or ()]
        lines = ag_ui_stream(agent, prompt, thread, resume, request.runId)
        return StreamingResponse(lines, media_type="text/event-stream")

    return app


class Clerk(Approval, Agent): ...


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def last(messages: Sequence[Message], tools: object) -> str:
    return messages[-1].text


clerk = Clerk(llm=ScriptedModel(call("pay", amount=500), last), tools=[pay])


async def main() -> None:
    print(*[chunk async for chunk in ag_ui_stream(clerk, "Pay 500.")], sep="", end="")
    [waiting] = clerk.pending
    review = {"verdict": "allow", "arguments": {"amount": 50}}
    resume = [{"interruptId": waiting.id, "status": "resolved", "payload": review}]
    print(*[chunk async for chunk in ag_ui_stream(clerk, None, resume=resume)], sep="", end="")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        import uvicorn

        uvicorn.run(application(clerk))
    else:
        asyncio.run(main())
