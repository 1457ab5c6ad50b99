"""A fleet: runs that survive their process, on many machines, with limits per model.

Use a fleet if runs are long, expensive, or too many for one machine. This file is the worker.
`python fleet.py work NAME` starts one; if you start it again with the same NAME, it goes on with
its runs. Workers write heartbeats: six seconds after the last one of a worker that was killed,
another worker logs the loss and takes over its runs. `python fleet.py lost NAME` does that by hand.
Everything is in the database: SQLite by default, or Postgres for many machines, with
`DATABASE_URL=postgresql+psycopg://...`. fleet_api.py is the HTTP API, and starts the whole fleet.
If you pass no arguments, this program does a single run in one process. Needs dbos, and psycopg for
Postgres.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, WorkflowHandle
from pydantic_core import to_json
from sqlalchemy.exc import OperationalError

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Message,
    Request,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    call,
    tool,
)
from agentloop.mixins.durable import Durable
from agentloop.waiting import cancel_and_wait

Reply = TypeVar("Reply")

URL = os.environ.get("DATABASE_URL", "sqlite:///fleet.sqlite")
QUEUES: dict[str, Any] = {  # per model: concurrent runs, and starts per period (seconds)
    "small": {"global_concurrency": 200, "worker_concurrency": 20},
    "large": {"global_concurrency": 20, "limiter": {"limit": 60, "period": 60}},
}
BEAT = 1.0  # seconds between two heartbeats of a worker
LOST = 6  # heartbeats of an observing worker until a silent worker counts as lost
TABLE = """CREATE TABLE IF NOT EXISTS fleet_workers
    (name TEXT PRIMARY KEY, process TEXT, beats INTEGER, at DOUBLE PRECISION)"""
REGISTER = """INSERT INTO fleet_workers VALUES (:name, :process, 0, :at)
    ON CONFLICT (name) DO UPDATE SET process = :process, beats = 0, at = :at"""
COUNT = """UPDATE fleet_workers SET beats = beats + 1, at = :at
    WHERE name = :name AND process = :process"""
CLAIM = """UPDATE fleet_workers SET process = :claim
    WHERE name = :name AND process = :process AND beats = :beats"""
log = logging.getLogger("fleet")


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
    calls = agent.conversation.states.values()
    is_unknown = any(call.status == "sealed" and call.start for call in calls)  # killed during one
    outcome = {"outcome": "unknown" if is_unknown else "known"}
    await DBOS.update_workflow_attributes_async(DBOS.workflow_id or "", outcome)
    return text


class Heartbeat(threading.Thread):
    """Increments a worker's counter in `fleet_workers`, and takes over the runs of lost workers.

    A worker is lost if its counter stays the same during `LOST` heartbeats of another worker. So
    nobody's clock has to be right, and an outage of the database doesn't look like a loss. The
    column `process` says which process the worker is. It's empty after a loss, and a worker that is
    still alive then exits.
    """

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True)
        self.row = {"name": name, "process": uuid4().hex}
        self.engine = sa.create_engine(URL)
        self.beats = 0
        self.seen = dict[str, tuple[tuple[str, int], int]]()  # a row, and `beats` at its change

    def change(self, sql: str, **values: Any) -> bool:
        """Execute a statement; return whether it changed a row."""
        with self.engine.begin() as connection:
            return connection.execute(sa.text(sql), values).rowcount > 0

    def register(self) -> None:
        """Claim the row of this name. Another process with the same name then exits."""
        self.change(TABLE)
        self.change(REGISTER, **self.row, at=time.time())

    def run(self) -> None:
        client = DBOSClient(system_database_url=URL)
        while True:
            try:
                if not self.change(COUNT, **self.row, at=time.time()):
                    log.critical("worker %s: lost, or started twice: exiting", self.row["name"])
                    os._exit(1)
                self.beats += 1
                for row in self.lost_workers():
                    self.replace_worker(client, **row)
            except Exception as error:  # the database is unavailable
                log.warning("heartbeat of worker %s failed: %s", self.row["name"], error)
            time.sleep(BEAT)

    def lost_workers(self) -> list[dict[str, Any]]:
        """The rows of the workers that count as lost."""
        with self.engine.connect() as connection:
            query = "SELECT name, process, beats FROM fleet_workers WHERE process != ''"
            rows = connection.execute(sa.text(query)).mappings().all()
        lost = list[dict[str, Any]]()
        for row in rows:
            state = row["process"], row["beats"]
            before, since = self.seen.get(row["name"], (None, 0))
            if state != before:
                self.seen[row["name"]] = state, self.beats
            elif self.beats - since >= LOST:
                lost.append(dict(row))
        return lost

    def replace_worker(self, client: DBOSClient, name: str, process: str, beats: int) -> None:
        """Take over the runs of a lost worker, unless another worker has claimed its row."""
        claim = f"claimed by {self.row['process']}"  # repeated by others if this process is killed
        if self.change(CLAIM, claim=claim, name=name, process=process, beats=beats):
            runs = take_over(client, name)
            self.change(CLAIM, claim="", name=name, process=claim, beats=beats)
            log.warning("worker %s is lost: others continue its runs (%d)", name, len(runs))


def work(name: str, heartbeat: Heartbeat | None = None) -> None:
    """Make this process a worker. It only takes runs of its own application version."""
    with suppress(OperationalError):  # before the first start, there is no database
        if heartbeat:  # before DBOS resumes runs, so that no other worker takes them over
            heartbeat.register()
    DBOS(config={"name": "fleet", "system_database_url": URL, "executor_id": name,
                 "application_version": "1", "log_level": "WARNING"})  # fmt: skip
    DBOS.launch()
    for queue, limits in QUEUES.items():
        DBOS.register_queue(queue, **limits)
    if heartbeat:
        heartbeat.register()
        heartbeat.start()


def take_over(client: DBOSClient, name: str) -> list[str]:
    """Give the runs of a lost worker to others. If it's still alive, it loses them all the same."""
    runs = client.list_workflows(status="PENDING", executor_id=name)
    for run in runs:
        client.resume_workflow(run.workflow_id, queue_name=run.queue_name)
    return [run.workflow_id for run in runs]


def demo() -> None:
    """Do one run, and print its events and the answer."""
    work("demo")
    client = DBOSClient(system_database_url=URL)
    name = f"small-{uuid4()}"  # fleet_api.py filters runs by this prefix, the model
    queued: Any = {"queue_name": "small", "workflow_name": "answer", "workflow_id": name}
    run: WorkflowHandle[str] = client.enqueue(queued, "small", "A1")
    for entry in client.read_stream(name, "events"):
        for event, data in entry:
            print(event, data)
    print(run.get_result())
    client.destroy()
    DBOS.destroy()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", name]:
            work(name, Heartbeat(name))
            print("ready", flush=True)
            threading.Event().wait()
        case ["work", name, "below"]:
            work(name, Heartbeat(name))
            print("ready", flush=True)
            sys.stdin.read()  # until the parent process ends, for any reason
            os._exit(1)  # a new worker of this name resumes the runs
        case ["lost", name]:
            print(*take_over(DBOSClient(system_database_url=URL), name), sep="\n")
        case _:
            demo()
