"""A fleet: runs that survive their process, on many machines, with limits per model.

Use a fleet when runs are long, expensive, or too many for one machine. This file is the worker.
`python fleet.py work NAME` starts a worker; after a restart with the same NAME the worker resumes
its runs. `python fleet.py lost NAME` reassigns the runs of a permanently lost worker to the others.
The database contains the entire state: SQLite by default; for many machines Postgres, with
DATABASE_URL=postgresql+psycopg://... fleet_api.py is the HTTP API, and starts the complete fleet.
Without arguments, this program executes a single run in one process. Requires dbos, and psycopg for
Postgres.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from dbos import DBOS, DBOSClient
from pydantic_core import to_json

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Message,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    call,
    tool,
)
from agentloop.loop import Request
from agentloop.mixins.durable import Durable
from agentloop.waiting import cancel_and_wait

Reply = TypeVar("Reply")

URL = os.environ.get("DATABASE_URL", "sqlite:///fleet.sqlite")
QUEUES: dict[str, Any] = {  # per model: concurrent runs, and starts per period (seconds)
    "small": {"global_concurrency": 200, "worker_concurrency": 20},
    "large": {"global_concurrency": 20, "limiter": {"limit": 60, "period": 60}},
}


@tool("Book a room")
async def book(room: str) -> str:
    return f"{room} is booked."


def think(messages: Sequence[Message], tools: object) -> ToolCall | str:
    """Simulate a model. Keep no state, because the next request may come from another process."""
    seen = messages[-1].text
    return call("book", room=seen) if len(messages) == 1 else seen


class Live(Loop):
    """Writes events to the stream of the workflow, also during a request or a tool call.

    A stream entry is a list of the events of a fifth of a second, in the form [name, JSON].
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unwritten = list[Any]()
        self.listeners = [*self.listeners, self.unwritten.append]
        self.writing = asyncio.Lock()  # keeps the order of events of concurrent calls

    async def call_model(self, request: Request) -> AssistantMessage:
        return await self.write_during(super().call_model(request))

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        return await self.write_during(super().call_tool(call))

    async def write_during(self, work: Awaitable[Reply]) -> Reply:
        """Wait for a reply or a result, and write the events that arrive in the meantime."""
        going = asyncio.ensure_future(work)
        try:
            while not going.done():
                await asyncio.wait([going], timeout=0.2)
                await self.write()
            return going.result()
        finally:
            await cancel_and_wait([going], 5)

    async def write(self) -> None:
        async with self.writing:
            entry = [[type(event).__name__, to_json(event).decode()] for event in self.unwritten]
            self.unwritten.clear()
            if entry:
                await DBOS.write_stream_async("events", entry)


class Worker(Agent, Durable, Live):  # after Durable, so that Live runs inside the steps
    tools = (book,)


@DBOS.workflow()
async def answer(model: str, prompt: str) -> str:
    agent = Worker(llm=ScriptedModel(think, think, model=model))  # or ChatOpenAI(model)
    text = await agent.query(prompt)
    await agent.write()
    return text


def work(name: str) -> None:
    """Make this process a worker. Workers accept only runs of the same application version."""
    DBOS(config={"name": "fleet", "system_database_url": URL, "executor_id": name,
                 "application_version": "1", "log_level": "WARNING"})  # fmt: skip
    DBOS.launch()
    for queue, limits in QUEUES.items():
        DBOS.register_queue(queue, **limits)


def take_over(client: DBOSClient, name: str) -> list[str]:
    """Reassign the runs of a lost worker. A worker that is still alive loses its runs, too."""
    runs = client.list_workflows(status="PENDING", executor_id=name)
    for run in runs:
        client.resume_workflow(run.workflow_id, queue_name=run.queue_name)
    return [run.workflow_id for run in runs]


def demo() -> None:
    """Execute one run; print the events and the answer."""
    work("demo")
    client = DBOSClient(system_database_url=URL)
    name = f"small-{uuid4()}"  # fleet_api.py filters runs by this prefix, the model
    queued: Any = {"queue_name": "small", "workflow_name": "answer", "workflow_id": name}
    run = client.enqueue(queued, "small", "A1")
    for entry in client.read_stream(name, "events"):
        for event, data in entry:
            print(event, data)
    print(run.get_result())
    client.destroy()
    DBOS.destroy()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", name]:
            work(name)
            print("ready", flush=True)
            threading.Event().wait()
        case ["work", name, "below"]:
            work(name)
            print("ready", flush=True)
            sys.stdin.read()  # until the parent process ends, for any reason
            os._exit(1)  # a new worker of this name resumes the runs
        case ["lost", name]:
            print(*take_over(DBOSClient(system_database_url=URL), name), sep="\n")
        case _:
            demo()
