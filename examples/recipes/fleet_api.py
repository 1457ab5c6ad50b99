"""A fleet over HTTP, and one command that starts the database, the workers and this server.

Use the API to start, watch and cancel runs remotely. `python fleet_api.py` starts the complete
fleet on this machine, with SQLite in the current folder. `python fleet_api.py postgres` also starts
a local Postgres as its database; DATABASE_URL selects an existing database. The page
http://127.0.0.1:8000/docs documents the requests, for example

    curl 127.0.0.1:8000/runs --json '{"model": "small", "prompt": "A1"}'
    curl -N 127.0.0.1:8000/runs/ID/events
    curl -X DELETE 127.0.0.1:8000/runs/ID

The API doesn't know who its clients are: put a proxy with a login in front. The server only uses
the database, so `uvicorn fleet_api:app` may run in many processes. Needs dbos, fastapi and uvicorn,
and psycopg for Postgres. The workers are in fleet.py.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import sqlalchemy as sa
import uvicorn
from dbos import DBOSClient
from fastapi import FastAPI, Header, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, Field

from agentloop.messages import clean_text
from agentloop.waiting import cancel_and_wait

HERE = Path(__file__).parent
Model = Literal["small", "large"]  # every model has a queue of the same name
Status = Literal["waiting", "running", "done", "outcome_unknown", "failed", "cancelled"]
STATUS: dict[str, Status] = {
    "DELAYED": "waiting",
    "ENQUEUED": "waiting",
    "PENDING": "running",
    "SUCCESS": "done",  # or "outcome_unknown": see `as_run`
    "ERROR": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",  # repeatedly killed its worker
    "CANCELLED": "cancelled",
}
PAGE = 1000  # runs per query
KEEP_ALIVE = 15.0  # seconds until a silent stream sends a comment, so that proxies keep it open
SILENCE = 10.0  # seconds without a heartbeat until the metrics count a worker as lost
app = FastAPI(title="fleet")


class Question(BaseModel):
    model: Model
    prompt: str = Field(min_length=1, max_length=100_000)


class Run(BaseModel):
    """A run, as returned to clients. `error` is the class name of the exception.

    The status "outcome_unknown" means that the run ended, but that its worker was lost during a
    tool call, which may have had effects: check them.
    """

    id: str
    model: str
    status: Status
    worker: str | None
    begun: datetime
    ended: datetime | None
    answer: str | None = None
    error: str | None = None


def url() -> str:
    return os.environ.get("DATABASE_URL", "sqlite:///fleet.sqlite")


@cache
def client() -> DBOSClient:
    return DBOSClient(system_database_url=url())


@cache
def engine() -> sa.Engine:
    return sa.create_engine(url(), poolclass=sa.NullPool)


async def runs(**filters: Any) -> list[Run]:
    """The runs in the database, newest first."""
    workflows = await client().list_workflows_async(name="answer", sort_desc=True, **filters)
    return [as_run(workflow) for workflow in workflows]


def as_run(workflow: Any) -> Run:
    status = STATUS[workflow.status]
    if status == "done" and (workflow.attributes or {}).get("outcome") == "unknown":
        status = "outcome_unknown"
    return Run(
        id=workflow.workflow_id,
        model=workflow.workflow_id.partition("-")[0],
        status=status,
        worker=workflow.executor_id,
        begun=workflow.created_at / 1000,
        ended=workflow.completed_at and workflow.completed_at / 1000,
        answer=workflow.output,
        error=workflow.error and type(workflow.error).__name__,
    )


class EventStream(StreamingResponse):
    """Server-sent events. If the server stops before the end, clients reconnect for the rest."""

    media_type = "text/event-stream"

    async def __call__(self, *asgi: Any) -> None:
        with suppress(asyncio.CancelledError):
            await super().__call__(*asgi)


async def find(run_id: str) -> Run:
    """Return a run. 404: unknown id; 410: the run was cancelled."""
    matches = await runs(workflow_ids=[run_id])
    if not matches:
        raise HTTPException(404, "unknown run")
    if matches[0].status == "cancelled":
        raise HTTPException(410, "the run was cancelled")
    return matches[0]


@app.exception_handler(RequestValidationError)
async def refuse(request: object, error: Exception) -> PlainTextResponse:
    """Reject an invalid request, which may contain text that is invalid Unicode."""
    return PlainTextResponse(clean_text(str(error)), 422)


@app.post("/runs", status_code=202)
async def begin(question: Question) -> Run:
    """Start a run. The returned run is stored in the database and survives every process."""
    model = question.model
    run_id = f"{model}-{uuid4()}"  # the prefix to filter by: cancelled runs leave their queue
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
    """List runs without their answers, newest first."""
    stored = "done" if status == "outcome_unknown" else status
    states = [theirs for theirs, ours in STATUS.items() if stored in (None, ours)]
    prefix = f"{model}-" if model else None
    matching = list[Run]()
    skipped = 0
    while len(matching) < offset + limit:
        # DBOS cannot filter by outcome on SQLite
        page: Any = {"limit": PAGE, "offset": skipped, "load_input": False, "load_output": False}
        batch = await runs(status=states, workflow_id_prefix=prefix, **page)
        matching += [run for run in batch if status in (None, run.status)]
        skipped += PAGE
        if len(batch) < PAGE:
            break
    return matching[offset : offset + limit]


@app.get("/runs/{run_id}")
async def show(run_id: str) -> Run:
    """Return the present state of a run, without waiting."""
    return await find(run_id)


@app.delete("/runs/{run_id}")
async def cancel(run_id: str) -> None:
    """Cancel a run: no further step starts. 409: the run has already ended."""
    run = await find(run_id)
    if run.ended:
        raise HTTPException(409, f"the run is {run.status}")
    await client().cancel_workflow_async(run_id)


@app.get("/runs/{run_id}/events")
async def events(
    run_id: str, last_event_id: Annotated[str, Header(pattern=r"^\d{1,9}-\d{1,9}$")] = "0-0"
) -> EventStream:
    """Stream the events of a run from the beginning, or after the client's last event.

    A browser's EventSource sends the last id automatically after a lost connection. The final event
    is `End`, with the run's status: close the EventSource then, otherwise it reconnects.
    """
    await find(run_id)
    entry, place = map(int, last_event_id.split("-"))
    return EventStream(lines(run_id, entry, place))


async def lines(run_id: str, entry: int, place: int) -> AsyncGenerator[str]:
    """Yield the events after position `place` (counted from 1) of a stream entry."""
    stream = client().read_stream_async(run_id, "events", offset=entry)
    async for batch in with_pauses(stream, KEEP_ALIVE):
        if batch is None:
            yield ": no new events\n\n"
            continue
        for number, (name, data) in enumerate(batch, 1):
            if number > place:
                yield f"id: {entry}-{number}\nevent: {name}\ndata: {data}\n\n"
        entry, place = entry + 1, 0
    [run] = await runs(workflow_ids=[run_id])
    yield f'event: End\ndata: "{run.status}"\n\n'


async def with_pauses(
    stream: AsyncIterator[list[Any]], seconds: float
) -> AsyncGenerator[list[Any] | None]:
    """Yield the items of a stream, and None whenever the stream is silent for some seconds."""
    reading = None
    try:
        while True:
            reading = reading or asyncio.ensure_future(anext(stream, None))
            if not (await asyncio.wait([reading], timeout=seconds))[0]:
                yield None
                continue
            item = reading.result()
            reading = None
            if item is None:
                return
            yield item
    finally:
        if reading:
            await cancel_and_wait([reading], 5)


def workers() -> list[tuple[str, bool, float]]:
    """Return each worker's name, whether it is alive, and the age of its newest heartbeat."""
    with engine().connect() as connection:
        if not sa.inspect(connection).has_table("fleet_workers"):
            return []
        rows = connection.execute(sa.text("SELECT name, process, at FROM fleet_workers")).all()
    ages = [(name, process, max(0.0, time.time() - at)) for name, process, at in rows]
    return [(name, process != "" and age < SILENCE, age) for name, process, age in sorted(ages)]


@app.get("/metrics")
async def metrics() -> PlainTextResponse:
    """Return statistics on the runs of the last 24 hours in the Prometheus format."""
    since = datetime.now(UTC) - timedelta(days=1)
    recent = await runs(start_time=since.isoformat(), load_input=False, load_output=False)
    counts = Counter((run.model, run.status) for run in recent)
    waiting = [run.begun for run in recent if run.status == "waiting"]
    oldest = (datetime.now(UTC) - min(waiting)).total_seconds() if waiting else 0
    took = [(run.ended - run.begun).total_seconds() for run in recent if run.ended]
    page = ["# TYPE fleet_runs gauge"]
    for (model, status), count in sorted(counts.items()):
        page.append(f'fleet_runs{{model="{model}",status="{status}"}} {count}')
    page += ["# TYPE fleet_oldest_waiting_seconds gauge", f"fleet_oldest_waiting_seconds {oldest}"]
    page += ["# TYPE fleet_workers gauge"]
    beats = await asyncio.to_thread(workers)
    alive = [name for name, is_alive, _ in beats if is_alive]
    page += [f'fleet_workers{{state="alive"}} {len(alive)}']
    page += [f'fleet_workers{{state="lost"}} {len(beats) - len(alive)}']
    page += ["# TYPE fleet_heartbeat_age_seconds gauge"]
    for name, _, age in beats:
        page.append(f'fleet_heartbeat_age_seconds{{worker="{name}"}} {age:.1f}')
    page += ["# TYPE fleet_run_seconds summary"]
    page += [f"fleet_run_seconds_sum {sum(took)}", f"fleet_run_seconds_count {len(took)}"]
    return PlainTextResponse("\n".join(page) + "\n", media_type="text/plain; version=0.0.4")


# ---- the command that starts the fleet


@contextmanager
def worker(name: str) -> Generator[None]:
    """Start a worker, and wait until it is ready: the first worker creates the tables.

    The worker ends with this process, even after a kill, because two workers with the same name
    would execute the same runs.
    """
    command = [sys.executable, str(HERE / "fleet.py"), "work", name, "below"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # a new session: Ctrl-C reaches only this process, which then ends its workers
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            if process.stdout and process.stdout.readline() != "ready\n":
                raise SystemExit(f"the worker {name} did not start")
            yield
        finally:
            process.kill()  # a new worker of this name resumes the runs


@contextmanager
def postgres(folder: Path) -> Generator[str]:
    """Start a Postgres server with its data in a folder; yield the URL."""
    port = os.environ.get("PGPORT", "54321")
    places = [str(path.parent) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    search = os.pathsep.join([os.environ.get("PATH", ""), *places[::-1]])
    user = "postgres" if os.getuid() == 0 else None  # Postgres refuses to run as root

    def run(program: str, *arguments: str) -> None:
        path = shutil.which(program, path=search)
        if not path:
            raise SystemExit(f"{program} not found: install postgresql")
        command = [path, "-D", str(folder), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, user=user)

    if not folder.exists():
        folder.mkdir(0o700)
        if user:
            shutil.chown(folder, user)
        run("initdb", "-U", "fleet", "-A", "trust")  # any local user may connect
    options = f"-h 127.0.0.1 -p {port} -k {folder}"
    # restarts a server that a killed command has left running
    run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "restart")
    try:
        yield f"postgresql+psycopg://fleet@127.0.0.1:{port}/fleet"
    finally:
        run("pg_ctl", "-m", "fast", "stop")


def up(database: str, names: tuple[str, ...] = ("a", "b")) -> None:
    """Run the database, the workers and the HTTP server until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    port = int(os.environ.get("PORT", "8000"))
    # bounded, because clients that follow a run keep connections open
    config = uvicorn.Config(app, host="127.0.0.1", port=port, timeout_graceful_shutdown=2)
    door = config.bind_socket()  # first, so that a second instance of the command fails here
    with ExitStack() as parts:
        if database == "postgres":
            server = postgres(Path("fleet-postgres").resolve())
            os.environ["DATABASE_URL"] = parts.enter_context(server)
        for name in names:
            parts.enter_context(worker(name))
        uvicorn.Server(config).run([door])


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C, after an orderly shutdown
        up(sys.argv[1] if sys.argv[1:] else "sqlite")
