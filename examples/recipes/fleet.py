"""A fleet: runs that survive their process, on many machines, with limits for each model.

One wants it when runs take long, cost much, or are too many for one machine. This is the side of
the workers: `python fleet.py work NAME` is one, which under the same NAME goes on with its runs;
`python fleet.py lost NAME` gives the runs of a worker that never comes back to the others. All is
in the database: SQLite, or with DATABASE_URL=postgresql+psycopg://... Postgres, for many machines.
fleet_api.py is the front, and starts all of it. Without an argument, this is one run in one
process. It needs dbos, and psycopg for Postgres.
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
QUEUES: dict[str, Any] = {  # of each model: runs at once, and how many start in how many seconds
    "small": {"global_concurrency": 200, "worker_concurrency": 20},
    "large": {"global_concurrency": 20, "limiter": {"limit": 60, "period": 60}},
}


@tool("Book a room")
async def book(room: str) -> str:
    return f"{room} is booked."


def think(messages: Sequence[Message], tools: object) -> ToolCall | str:
    """Stand in for a model; keep nothing in mind, for it may be asked in another process."""
    seen = messages[-1].text
    return call("book", room=seen) if len(messages) == 1 else seen


class Live(Loop):
    """Writes its events to its workflow's stream, also while a request or a call is under way.

    An entry of the stream holds the events of a fifth of a second, each as [name, JSON].
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.told = list[Any]()
        self.listeners = [*self.listeners, self.told.append]
        self.writing = asyncio.Lock()  # calls run side by side, and their events keep their order

    async def call_model(self, request: Request) -> AssistantMessage:
        return await self.write_during(super().call_model(request))

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        return await self.write_during(super().call_tool(call))

    async def write_during(self, work: Awaitable[Reply]) -> Reply:
        """Wait for a reply or a result, and write the events that come meanwhile."""
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
            told = [[type(event).__name__, to_json(event).decode()] for event in self.told]
            self.told.clear()
            if told:
                await DBOS.write_stream_async("events", told)


class Worker(Agent, Durable, Live):  # after Durable, Live runs inside the steps
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


def demo() -> None:
    """Do one run, and print its events and its answer."""
    work("demo")
    client = DBOSClient(system_database_url=URL)
    name = f"small-{uuid4()}"  # fleet_api.py lists runs by the model in their names
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
            sys.stdin.read()  # ends with the process that started this one, however that ends
            os._exit(1)  # its runs go on when a worker of this name is back
        case ["lost", name]:
            print(*take_over(DBOSClient(system_database_url=URL), name), sep="\n")
        case _:
            demo()
