"""A FastAPI endpoint: an agent's run as server-sent events.

Use the endpoint to offer an agent over HTTP. Requests run concurrently, in forks of one template. A
client that disconnects cancels its run. `uvicorn fastapi_endpoint:app` starts a server; `python
fastapi_endpoint.py` sends one request without a server. For conversations see session_pool.py.
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

PUBLIC = (events.TextDeltaEvent, events.StepStartEvent, events.FinalResponseEvent)
TEMPLATE = Agent(llm=ScriptedModel(lambda messages, tools: f"You said: {messages[-1].text}"))
app = FastAPI()


class Question(BaseModel):
    text: str = Field(min_length=1, max_length=10_000)


def template() -> Agent:
    """Return the agent to fork. Tests override this dependency in `app.dependency_overrides`."""
    return TEMPLATE


async def lines(agent: Agent, prompt: str) -> AsyncIterator[bytes]:
    """Yield the public events of a run. Closing the generator cancels the run."""
    async with agent.query_stream(prompt) as stream:
        try:
            async for event in stream:
                if isinstance(event, PUBLIC):
                    name = type(event).__name__.removesuffix("Event")
                    yield b"event: %s\ndata: %s\n\n" % (name.encode(), to_json(event))
            if end := stream.result:  # `value` is set if the agent has an `output_type`
                yield b"event: Result\ndata: %s\n\n" % to_json([end.stop_reason, end.value])
        except ModelError as error:  # too late for another status: 200 was sent
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
