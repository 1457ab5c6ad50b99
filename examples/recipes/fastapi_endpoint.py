"""A FastAPI endpoint: an agent's run as server-sent events.

One wants it to put an agent behind HTTP. Each request runs a fork of one template, so requests run
side by side; a client that goes away cancels its run. `uvicorn fastapi_endpoint:app` serves it;
without a server, `python fastapi_endpoint.py` asks it once. For conversations: session_pool.py.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import httpx
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from pydantic_core import to_json

from agentloop import Agent, ModelError, ScriptedModel, events

TOLD = (events.TextDeltaEvent, events.StepStartEvent, events.FinalResponseEvent)
TEMPLATE = Agent(llm=ScriptedModel(lambda messages, tools: f"You said: {messages[-1].text}"))
app = FastAPI()


class Question(BaseModel):
    text: str = Field(min_length=1, max_length=10_000)


def template() -> Agent:
    """The agent to fork; tests override it with `app.dependency_overrides`."""
    return TEMPLATE


async def lines(agent: Agent, prompt: str) -> AsyncIterator[bytes]:
    """The events of a run that a client may see. What ends the generator cancels the run."""
    async with agent.query_stream(prompt) as stream:
        try:
            async for event in stream:
                if isinstance(event, TOLD):
                    name = type(event).__name__.removesuffix("Event")
                    yield b"event: %s\ndata: %s\n\n" % (name.encode(), to_json(event))
            if end := stream.result:  # the Result; an `output_type` makes its value
                yield b"event: Result\ndata: %s\n\n" % to_json([end.stop_reason, end.value])
        except ModelError as error:  # status 200 is sent already
            yield b"event: Error\ndata: %s\n\n" % to_json({"error": type(error).__name__})


@app.post("/ask")
async def ask(question: Question, agent: Annotated[Agent, Depends(template)]) -> StreamingResponse:
    return StreamingResponse(lines(agent.fork(), question.text), media_type="text/event-stream")


async def main() -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        print((await client.post("/ask", json={"text": "Hello"})).text, end="")


if __name__ == "__main__":
    asyncio.run(main())
