"""A fleet over HTTP, and one command that starts all of it: database, workers and this front.

One wants it to begin runs from elsewhere, to watch them and to stop them. `python fleet_api.py` is
all of it on this machine, with SQLite in this folder; `python fleet_api.py postgres` is the same on
a Postgres that it starts here; with DATABASE_URL it is on that one. Then
http://127.0.0.1:8000/docs shows what can be asked, such as

    curl 127.0.0.1:8000/runs --json '{"model": "small", "prompt": "A1"}'
    curl -N 127.0.0.1:8000/runs/ID/events
    curl -X DELETE 127.0.0.1:8000/runs/ID

Nobody has to log in: put it behind what asks for a login. It only talks to the database, so
`uvicorn fleet_api:app` may run many times. It needs dbos, fastapi and uvicorn, and psycopg for
Postgres; fleet.py has the workers.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import uvicorn
from dbos import DBOSClient
from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, Field

HERE = Path(__file__).parent
Model = Literal["small", "large"]  # each has a queue of its name
Status = Literal["waiting", "running", "done", "failed", "cancelled"]
STATUS: dict[str, Status] = {
    "DELAYED": "waiting",
    "ENQUEUED": "waiting",
    "PENDING": "running",
    "SUCCESS": "done",
    "ERROR": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",  # its worker died of it again and again
    "CANCELLED": "cancelled",
}
app = FastAPI(title="fleet")


class Question(BaseModel):
    model: Model
    prompt: str = Field(min_length=1, max_length=100_000)


class Run(BaseModel):
    """A run as its user sees it. `error` is the kind of what went wrong."""

    id: str
    model: str
    status: Status
    begun: datetime
    ended: datetime | None
    answer: str | None = None
    error: str | None = None


@cache
def client() -> DBOSClient:
    url = os.environ.get("DATABASE_URL", "sqlite:///fleet.sqlite")
    return DBOSClient(system_database_url=url)


async def runs(**filters: Any) -> list[Run]:
    """Read runs from the database, the newest first."""
    found = await client().list_workflows_async(name="answer", sort_desc=True, **filters)
    return [as_run(each) for each in found]


def as_run(workflow: Any) -> Run:
    return Run(
        id=workflow.workflow_id,
        model=workflow.workflow_id.partition("-")[0],
        status=STATUS[workflow.status],
        begun=workflow.created_at / 1000,
        ended=workflow.completed_at and workflow.completed_at / 1000,
        answer=workflow.output,
        error=workflow.error and type(workflow.error).__name__,
    )


class EventStream(StreamingResponse):
    """Server-sent events. If the front ends before them, the client asks again for the rest."""

    media_type = "text/event-stream"

    async def __call__(self, *asgi: Any) -> None:
        with suppress(asyncio.CancelledError):
            await super().__call__(*asgi)


async def find(run_id: str) -> Run:
    """Return a run. 404: there is none with this id; 410: it was cancelled."""
    found = await runs(workflow_ids=[run_id])
    if not found:
        raise HTTPException(404, "there is no such run")
    if found[0].status == "cancelled":
        raise HTTPException(410, "the run was cancelled")
    return found[0]


@app.post("/runs", status_code=202)
async def begin(question: Question) -> Run:
    """Begin a run. It is in the database when this returns, and survives all processes."""
    model = question.model
    run_id = f"{model}-{uuid4()}"  # by which it is listed: a cancelled run is in no queue any more
    queued: Any = {"queue_name": model, "workflow_name": "answer", "workflow_id": run_id}
    await client().enqueue_async(queued, model, question.prompt)
    return await find(run_id)


@app.get("/runs")
async def list_runs(
    model: Model | None = None,
    status: Status | None = None,
    limit: Annotated[int, Field(ge=1, le=1000)] = 100,
    offset: Annotated[int, Field(ge=0)] = 0,
) -> list[Run]:
    """List runs, the newest first, without their answers."""
    states = [theirs for theirs, ours in STATUS.items() if status in (None, ours)]
    page: Any = {"limit": limit, "offset": offset, "load_input": False, "load_output": False}
    prefix = f"{model}-" if model else None
    return await runs(status=states, workflow_id_prefix=prefix, **page)


@app.get("/runs/{run_id}")
async def show(run_id: str) -> Run:
    """Say how a run stands now. This never waits for it."""
    return await find(run_id)


@app.delete("/runs/{run_id}")
async def cancel(run_id: str) -> None:
    """Cancel a run: no further step of it starts. 409: it has ended."""
    run = await find(run_id)
    if run.ended:
        raise HTTPException(409, f"the run is {run.status}")
    await client().cancel_workflow_async(run_id)


@app.get("/runs/{run_id}/events")
async def events(
    run_id: str, last_event_id: Annotated[str, Header(pattern=r"^\d{1,9}-\d{1,9}$")] = "0-0"
) -> EventStream:
    """Tell the events of a run, from its beginning or from the last one that the client got.

    A browser's EventSource sends the last id by itself after a lost connection. The last event is
    `End`, with the run's status: then close the EventSource, or it asks again.
    """
    await find(run_id)
    entry, place = map(int, last_event_id.split("-"))
    return EventStream(lines(run_id, entry, place))


async def lines(run_id: str, entry: int, place: int) -> AsyncGenerator[str]:
    """Write events behind the one at a place in an entry of the stream; places begin at 1."""
    stream = client().read_stream_async(run_id, "events", offset=entry)
    async for told in stream:
        for number, (name, data) in enumerate(told, 1):
            if number > place:
                yield f"id: {entry}-{number}\nevent: {name}\ndata: {data}\n\n"
        entry, place = entry + 1, 0
    [run] = await runs(workflow_ids=[run_id])
    yield f'event: End\ndata: "{run.status}"\n\n'


@app.get("/metrics")
async def metrics() -> PlainTextResponse:
    """Count the runs of the last day, as Prometheus reads it."""
    since = datetime.now(UTC) - timedelta(days=1)
    found = await runs(start_time=since.isoformat(), load_input=False, load_output=False)
    counts = Counter((run.model, run.status) for run in found)
    waiting = [run.begun for run in found if run.status == "waiting"]
    oldest = (datetime.now(UTC) - min(waiting)).total_seconds() if waiting else 0
    took = [(run.ended - run.begun).total_seconds() for run in found if run.ended]
    page = ["# TYPE fleet_runs gauge"]
    for (model, status), count in sorted(counts.items()):
        page.append(f'fleet_runs{{model="{model}",status="{status}"}} {count}')
    page += ["# TYPE fleet_oldest_waiting_seconds gauge", f"fleet_oldest_waiting_seconds {oldest}"]
    page += ["# TYPE fleet_run_seconds summary"]
    page += [f"fleet_run_seconds_sum {sum(took)}", f"fleet_run_seconds_count {len(took)}"]
    return PlainTextResponse("\n".join(page) + "\n", media_type="text/plain; version=0.0.4")


# ---- the one command


@contextmanager
def worker(name: str) -> Generator[None]:
    """Start a worker, and wait until it takes runs: the first one makes the tables.

    It ends with this process, even if that is killed: two of one name would do the same runs.
    """
    command = [sys.executable, str(HERE / "fleet.py"), "work", name, "below"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # Ctrl-C is for this process, which then ends its workers
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            if process.stdout and process.stdout.readline() != "ready\n":
                raise SystemExit(f"the worker {name} did not start")
            yield
        finally:
            process.kill()  # when it comes back under its name, it goes on with its runs


@contextmanager
def postgres(folder: Path) -> Generator[str]:
    """Start a Postgres that keeps its data in a folder; give its URL."""
    port = os.environ.get("PGPORT", "54321")
    places = [str(path.parent) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    search = os.pathsep.join([os.environ.get("PATH", ""), *places[::-1]])
    user = "postgres" if os.getuid() == 0 else None  # Postgres refuses to run as root

    def run(program: str, *arguments: str) -> None:
        found = shutil.which(program, path=search)
        if not found:
            raise SystemExit(f"there is no {program}: install postgresql")
        command = [found, "-D", str(folder), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, user=user)

    if not folder.exists():
        folder.mkdir(0o700)
        if user:
            shutil.chown(folder, user)
        run("initdb", "-U", "fleet", "-A", "trust")  # whoever is on this machine may connect
    options = f"-h 127.0.0.1 -p {port} -k {folder}"
    # one that a killed command has left behind is started again
    run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "restart")
    try:
        yield f"postgresql+psycopg://fleet@127.0.0.1:{port}/fleet"
    finally:
        run("pg_ctl", "-m", "fast", "stop")


def up(database: str, names: tuple[str, ...] = ("a", "b")) -> None:
    """Start the database, the workers and the front, until Ctrl-C or SIGTERM ends them all."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    port = int(os.environ.get("PORT", "8000"))
    # who follows a run does not keep the command from ending
    config = uvicorn.Config(app, host="127.0.0.1", port=port, timeout_graceful_shutdown=2)
    door = config.bind_socket()  # first: where the command runs already, this one ends here
    with ExitStack() as parts:
        if database == "postgres":
            server = postgres(Path("fleet-postgres").resolve())
            os.environ["DATABASE_URL"] = parts.enter_context(server)
        for name in names:
            parts.enter_context(worker(name))
        uvicorn.Server(config).run([door])


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C, once all is closed
        up(*sys.argv[1:2] or ["sqlite"])
