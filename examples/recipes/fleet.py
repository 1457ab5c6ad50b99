"""A fleet: runs that survive their process, on many machines, with limits for each model.

One wants it when runs take long, cost much, or are too many for one machine. Without an argument
this is all of it in one process, on SQLite. With DATABASE_URL=postgresql+psycopg://... it is a
fleet: `python fleet.py work NAME` is a worker, which under the same NAME goes on with its runs;
`uvicorn fleet:app` is the front; `python fleet.py lost NAME` gives the runs of a worker that never
comes back to the others. It needs dbos, psycopg, fastapi and uvicorn.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import httpx
from dbos import DBOS, DBOSClient
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from agentloop import Agent, AssistantMessage, Loop, Message, ScriptedModel, ToolCall, tool
from agentloop.loop import Request
from agentloop.mixins.durable import Durable
from agentloop.models.scripted import call

URL = os.environ.get("DATABASE_URL", "sqlite:///fleet.sqlite")
Model = Literal["small", "large"]
QUEUES: dict[Model, Any] = {  # of each model: runs at once, and how many start in how many seconds
    "small": {"global_concurrency": 200, "worker_concurrency": 20},
    "large": {"global_concurrency": 20, "limiter": {"limit": 60, "period": 60}},
}
app = FastAPI()


@tool("Book a room")
async def book(room: str) -> str:
    return f"{room} is booked."


def think(messages: Sequence[Message], tools: object) -> ToolCall | str:
    """Stands in for a model, and keeps nothing in mind: it may be asked in another process."""
    seen = messages[-1].text
    return call("book", room=seen) if len(messages) == 1 else seen


class Live(Loop):
    """Writes its events to its workflow's stream, also while a request is under way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.told = list[Any]()
        self.listeners = [*self.listeners, self.told.append]

    async def call_model(self, request: Request) -> AssistantMessage:
        reply = asyncio.ensure_future(super().call_model(request))
        try:
            while not reply.done():
                await asyncio.wait([reply], timeout=0.2)
                await self.write()
            return reply.result()
        finally:
            reply.cancel()

    async def write(self) -> None:
        told = [b"event: %s\ndata: %s\n\n" % (type(event).__name__.encode(), to_json(event))
                for event in self.told]  # fmt: skip
        self.told.clear()
        await DBOS.write_stream_async("events", b"".join(told))


class Worker(Agent, Durable, Live):  # at the right of Durable, Live is inside the steps
    tools = (book,)


@DBOS.workflow()
async def answer(model: str, prompt: str) -> str:
    agent = Worker(llm=ScriptedModel(think, think, model=model))  # ChatOpenAI(model), say
    text = await agent.query(prompt)
    await agent.write()
    return text


def work(name: str) -> None:
    """Make this process a worker. It takes runs of its own version of the program only."""
    DBOS(config={"name": "fleet", "system_database_url": URL, "executor_id": name,
                 "application_version": "1", "log_level": "WARNING"})  # fmt: skip
    DBOS.launch()
    for queue, limits in QUEUES.items():
        DBOS.register_queue(queue, **limits)


def take_over(client: DBOSClient, name: str) -> list[str]:
    """Give the runs of a lost worker to the others. If it lives after all, it loses them."""
    runs = client.list_workflows(status="PENDING", executor_id=name)
    for run in runs:
        client.resume_workflow(run.workflow_id, queue_name=run.queue_name)
    return [run.workflow_id for run in runs]


@cache
def client() -> DBOSClient:
    return DBOSClient(system_database_url=URL)


@app.post("/runs")
async def begin(model: Model, prompt: str) -> str:
    queued: Any = {"queue_name": model, "workflow_name": "answer"}
    return (await client().enqueue_async(queued, model, prompt)).get_workflow_id()


@app.get("/runs/{run}")
async def result(run: str) -> str:
    return await (await client().retrieve_workflow_async(run)).get_result()


@app.get("/runs/{run}/events")
async def events(run: str) -> StreamingResponse:
    told = client().read_stream_async(run, "events")
    return StreamingResponse(told, media_type="text/event-stream")


@app.delete("/runs/{run}")
async def cancel(run: str) -> None:
    await client().cancel_workflow_async(run)


async def demo() -> None:
    inside = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=inside, base_url="http://fleet") as front:
        run = (await front.post("/runs", params={"model": "small", "prompt": "A1"})).json()
        print((await front.get(f"/runs/{run}/events")).text, end="")
        print((await front.get(f"/runs/{run}")).json())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", name]:
            work(name)
            threading.Event().wait()
        case ["lost", name]:
            print(*take_over(client(), name), sep="\n")
        case _:
            work("demo")
            asyncio.run(demo())
            client().destroy()
            DBOS.destroy()
