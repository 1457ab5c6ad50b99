"""A FastAPI endpoint: an agent's run as server-sent events, of its own or of Anthropic's API.

Use the endpoint to offer an agent over HTTP. Requests run concurrently, in forks of one template. A
client that disconnects cancels its run. `uvicorn fastapi_endpoint:app` starts a server; `python
fastapi_endpoint.py` sends requests without one. For conversations see session_pool.py.

`POST /ask` streams the agent's own events. `POST /v1/messages` streams one message for clients of
Anthropic's Messages API, with texts and calls as blocks. The calls are `server_tool_use`: they have
run here.

A task is a run with a session. If a call, also of a sub-agent, awaits approval, the stream ends
with the pending calls, and a later request continues the task with the reviews:

    POST /tasks/bills   {"text": "Pay Bert 700."}
    POST /tasks/bills   {"reviews": [{"call_id": "...", "verdict": "allow"}]}

A review may also "deny", "respond" with the `note` as the call's result, or "allow" with other
`arguments`. Offer this endpoint only to people who may approve.

Requests are checked before the stream begins: its status, 200, is sent with its first line, so a
later failure is an event.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from tempfile import mkdtemp
from typing import Annotated, Any, Literal
from uuid import uuid4

import httpx
from fastapi import Depends, FastAPI, HTTPException, Path
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from pydantic_core import to_json

from agentloop import Agent, ModelError, ScriptedModel, Session, SessionLocked, call, events, tool
from agentloop.mixins.approval import Approval

STOPS = {"limit:length": "max_tokens", "refused": "refusal", "needs_approval": "pause_turn"}
PUBLIC = (events.TextDeltaEvent, events.StepStartEvent, events.FinalResponseEvent)
TEMPLATE = Agent(llm=ScriptedModel(lambda messages, tools: f"You said: {messages[-1].text}"))
FOLDER = mkdtemp()  # a real program keeps its sessions
app = FastAPI()


Text = Annotated[str, Field(pattern=r"\S", max_length=100_000)]  # a run needs a prompt


class Question(BaseModel, extra="forbid"):
    text: Text


class Review(BaseModel):
    call_id: str
    verdict: Literal["allow", "deny", "respond"]
    note: str = ""
    arguments: dict[str, Any] | None = None


class Reviews(BaseModel, extra="forbid"):
    reviews: list[Review] = Field(min_length=1)


class Block(BaseModel):
    """A block of a message of the Messages API. Only texts are read."""

    type: str
    text: str = ""


class Turn(BaseModel):
    role: Literal["user", "assistant"]
    content: Text | Annotated[list[Block], Field(min_length=1)]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(block.text for block in self.content if block.type == "text")


class Messages(BaseModel):
    messages: list[Turn] = Field(min_length=1)


class Clerk(Approval, Session, Agent): ...


@tool
def pay(to: str, amount: int) -> str:
    """Transfer money to a recipient."""
    return f"paid {amount} to {to}"


def opens() -> Callable[[str], Clerk]:
    """Return the function that opens a task. Tests override this dependency."""
    script = call("pay", to="bert", amount=700), lambda messages, tools: messages[-1].text

    def open_task(name: str) -> Clerk:
        clerk = Clerk(llm=ScriptedModel(*script), tools=[pay], session=name, session_dir=FOLDER)
        clerk.llm = ScriptedModel(*script[bool(clerk.messages) :])
        return clerk

    return open_task


def template() -> Agent:
    """Return the agent to fork. Tests override this dependency in `app.dependency_overrides`."""
    return TEMPLATE


async def lines(agent: Agent, prompt: str | None) -> AsyncIterator[bytes]:
    """Yield the public events of a run. Closing the generator cancels the run."""
    async with agent.query_stream(prompt) as stream:
        try:
            async for event in stream:
                if isinstance(event, PUBLIC):
                    name = type(event).__name__.removesuffix("Event")
                    yield b"event: %s\ndata: %s\n\n" % (name.encode(), to_json(event))
            for waiting in agent.pending:
                asked = {"id": waiting.id, "tool": waiting.name, "arguments": waiting.parsed}
                yield b"event: Pending\ndata: %s\n\n" % to_json(asked)
            if end := stream.result:  # `value` is set if the agent has an `output_type`
                yield b"event: Result\ndata: %s\n\n" % to_json([end.stop_reason, end.value])
        except ModelError as error:  # too late for another status: 200 was sent
            yield b"event: Error\ndata: %s\n\n" % to_json({"error": type(error).__name__})


def sse(kind: str, **data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


async def anthropic_stream(agent: Agent, prompt: str) -> AsyncIterator[str]:
    """Yield the events of a run. Source: https://docs.anthropic.com/en/api/messages-streaming"""
    about: dict[str, object] = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant"}
    about |= {"model": agent.llm.model, "content": [], "stop_reason": None, "stop_sequence": None}
    yield sse("message_start", message={**about, "usage": {"input_tokens": 0, "output_tokens": 0}})
    at, begun, sent = 0, False, {""}

    def part(kind: str, **data: object) -> str:
        return sse(f"content_block_{kind}", index=at, **data)

    async with agent.query_stream(prompt) as stream:
        try:
            async for event in stream:
                match event:
                    case events.TextDeltaEvent(content=text) if begun or text.strip():
                        if not begun:
                            yield part("start", content_block={"type": "text", "text": ""})
                        yield part("delta", delta={"type": "text_delta", "text": text})
                        begun = True
                    case events.ToolCallEvent(tool=name, args=args, tool_call_id=id):
                        use = {"type": "server_tool_use", "id": id, "name": name, "input": {}}
                        got = {"type": "input_json_delta", "partial_json": json.dumps(args)}
                        yield (
                            part("start", content_block=use)
                            + part("delta", delta=got)
                            + part("stop")
                        )
                        at += 1
                    case events.TextEvent(text) | events.FinalResponseEvent(text) if (
                        begun or text not in sent
                    ):
                        if not begun:  # not streamed: the text of a done tool or a Stop
                            yield part("start", content_block={"type": "text", "text": text})
                        yield part("stop")
                        at, begun, sent = at + 1, False, sent | {text}
        except ModelError as error:  # too late for another status: 200 was sent
            yield sse("error", error={"type": "api_error", "message": type(error).__name__})
        if result := stream.result:
            end = {"stop_reason": STOPS.get(result.stop_reason, "end_turn"), "stop_sequence": None}
            used = {name: getattr(result.usage, name) for name in ("input_tokens", "output_tokens")}
            yield sse("message_delta", delta=end, usage=used) + sse("message_stop")


@app.post("/ask")
async def ask(question: Question, agent: Annotated[Agent, Depends(template)]) -> StreamingResponse:
    return StreamingResponse(lines(agent.fork(), question.text), media_type="text/event-stream")


@app.post("/v1/messages")
async def messages(body: Messages, agent: Annotated[Agent, Depends(template)]) -> StreamingResponse:
    *history, newest = ({"role": turn.role, "content": turn.text} for turn in body.messages)
    if newest["role"] != "user" or not newest["content"].strip():
        raise HTTPException(422, "the last message must be a text of the user")
    fork = agent.fork()
    fork.load_history(history)
    lines = anthropic_stream(fork, newest["content"])
    return StreamingResponse(lines, media_type="text/event-stream")


@app.post("/tasks/{task}")
async def work(
    task: Annotated[str, Path(pattern="^[a-z0-9-]{1,40}$")],
    step: Question | Reviews,
    open_task: Annotated[Callable[[str], Clerk], Depends(opens)],
) -> StreamingResponse:
    try:
        agent = open_task(task)
    except SessionLocked:
        raise HTTPException(409, "this task is running") from None
    try:
        for review in step.reviews if isinstance(step, Reviews) else ():
            agent.decide(**review.model_dump())
    except ValueError as error:
        agent.close()
        raise HTTPException(422, str(error)) from None

    async def stream() -> AsyncIterator[bytes]:
        with agent:
            prompt = step.text if isinstance(step, Question) else None
            async for line in lines(agent, prompt):
                yield line

    return StreamingResponse(stream(), media_type="text/event-stream")


async def main() -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        print((await client.post("/ask", json={"text": "Hello"})).text, end="")
        body = {"messages": [{"role": "user", "content": "Hello"}]}
        print((await client.post("/v1/messages", json=body)).text, end="")
        asked = (await client.post("/tasks/bills", json={"text": "Pay Bert 700."})).text
        print(asked, end="")
        pending = asked.split("event: Pending\ndata: ")[1].split("\n")[0]
        edit = {"verdict": "allow", "arguments": {"to": "bert", "amount": 70}}
        review = edit | {"call_id": json.loads(pending)["id"]}
        print((await client.post("/tasks/bills", json={"reviews": [review]})).text, end="")


if __name__ == "__main__":
    asyncio.run(main())
