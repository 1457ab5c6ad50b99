"""The fleet in examples/recipes: the HTTP API, and the command that starts all processes."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from agentloop import Agent, ScriptedModel, call, tool
from tests import ROOT
from tests.library.mixins.test_durable import Postgres
from tests.recipes import FOLDER, load

pytest.importorskip("dbos")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
QUESTION = {"model": "small", "prompt": "A1"}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Return a database with one completed run."""
    folder = tmp_path_factory.mktemp("fleet")
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, str(FOLDER / "fleet.py")]
    subprocess.run(program, cwd=folder, env=path, check=True, capture_output=True, timeout=100)
    return f"sqlite:///{folder}/fleet.sqlite"


@pytest.fixture
def recipe(database, monkeypatch):
    """Return the API without workers, so that new runs stay queued."""
    monkeypatch.setenv("DATABASE_URL", database)
    recipe = load("fleet_api")
    yield recipe
    recipe.client().destroy()


@pytest.fixture
async def front(recipe):
    inside = httpx.ASGITransport(recipe.app)
    async with httpx.AsyncClient(transport=inside, base_url="http://fleet") as front:
        yield front


async def begin(front, **changes):
    answer = await front.post("/runs", json=QUESTION | changes)
    assert answer.status_code == 202
    return answer.json()


async def done_run(front):
    [run] = (await front.get("/runs", params={"status": "done"})).json()
    return run["id"]


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("DELETE", ""), ("GET", "/events")])
async def test_an_unknown_run_is_404_and_a_cancelled_one_410(front, method, path):
    assert (await front.request(method, f"/runs/nothing{path}")).status_code == 404
    run = await begin(front)
    assert (await front.delete(f"/runs/{run['id']}")).status_code == 200
    assert (await front.request(method, f"/runs/{run['id']}{path}")).status_code == 410


async def test_a_queued_run_has_the_status_waiting_immediately(front):
    run = await begin(front)
    assert run["status"] == "waiting"
    assert (await front.get(f"/runs/{run['id']}")).json() == run


async def test_a_completed_run_has_an_answer_and_cannot_be_cancelled(front):
    run = await done_run(front)
    answer = (await front.get(f"/runs/{run}")).json()
    assert (answer["status"], answer["answer"], answer["error"]) == ("done", "A1 is booked.", None)
    assert (await front.delete(f"/runs/{run}")).status_code == 409


async def test_runs_are_listed_by_model_and_status_the_newest_first(front):
    first = await begin(front, model="large")
    await asyncio.sleep(1.1)  # timestamps in SQLite have a resolution of one second
    second = await begin(front, model="large")
    listed = (await front.get("/runs", params={"model": "large", "status": "waiting"})).json()
    assert [run["id"] for run in listed] == [second["id"], first["id"]]
    page = {"model": "large", "limit": 1, "offset": 1}
    [older] = (await front.get("/runs", params=page)).json()
    assert older["id"] == first["id"]
    assert (await front.get("/runs", params={"status": "lost"})).status_code == 422


async def test_a_run_with_an_unknown_model_or_an_empty_prompt_is_rejected(front):
    for wrong in ({"model": "huge"}, {"prompt": ""}):
        assert (await front.post("/runs", json=QUESTION | wrong)).status_code == 422


@pytest.mark.parametrize("field", QUESTION)
async def test_a_lone_surrogate_in_a_request_is_a_client_error(front, field):
    headers = {"content-type": "application/json"}
    text = json.dumps(QUESTION | {field: "\ud800"})
    answer = await front.post("/runs", content=text, headers=headers)
    assert (answer.status_code, field in answer.text) == (422, True)


async def test_events_continue_after_the_last_event_id_of_a_client(front):
    path = f"/runs/{await done_run(front)}/events"
    whole = (await front.get(path)).text
    ids = re.findall(r"^id: (.+)$", whole, re.MULTILINE)
    assert whole.endswith('event: End\ndata: "done"\n\n')
    for last in ids:
        rest = (await front.get(path, headers={"Last-Event-ID": last})).text
        assert whole.endswith(rest)
        assert re.findall(r"^id: (.+)$", rest, re.MULTILINE) == ids[ids.index(last) + 1 :]
    for wrong in ("x", f"{10**30}-1"):
        assert (await front.get(path, headers={"Last-Event-ID": wrong})).status_code == 422


async def test_followers_of_a_run_receive_its_cancellation(recipe, front):
    run = (await begin(front))["id"]
    lines = recipe.lines(run, 0, 0)
    await front.delete(f"/runs/{run}")
    assert [line async for line in lines] == ['event: End\ndata: "cancelled"\n\n']


async def test_a_stream_without_events_sends_comments(recipe, front, monkeypatch):
    monkeypatch.setattr(recipe, "KEEP_ALIVE", 0.01)
    run = (await begin(front))["id"]
    lines = recipe.lines(run, 0, 0)
    assert [await anext(lines) for _ in range(3)] == [": no new events\n\n"] * 3
    await front.delete(f"/runs/{run}")
    assert [line async for line in lines][-1] == 'event: End\ndata: "cancelled"\n\n'


async def test_events_are_written_while_a_tool_runs(monkeypatch):
    recipe = load("fleet")
    written, is_written = [], asyncio.Event()

    async def write(stream, entry):
        written.extend(name for name, data in entry)
        if "ToolCallEvent" in written:
            is_written.set()

    @tool(timeout=10)
    async def book() -> str:
        """Run until the event of this call was written."""
        await is_written.wait()
        return "booked"

    class Live(Agent, recipe.Live): ...

    monkeypatch.setattr(recipe.DBOS, "write_stream_async", write)
    agent = Live(llm=ScriptedModel([call("book"), call("book")], "done"), tools=[book])
    await agent.run("Book.")
    assert [message.text for message in agent.messages[2:4]] == ["booked", "booked"]
    assert written.index("ToolCallEvent") < written.index("ToolResultEvent")


async def test_metrics_count_the_runs_by_model_and_status(front):
    before = (await front.get("/metrics")).text
    await begin(front, model="large")
    cancelled = await begin(front, model="large")
    await front.delete(f"/runs/{cancelled['id']}")
    page = (await front.get("/metrics")).text
    assert 'fleet_runs{model="large",status="cancelled"}' in page

    def waiting(text):
        match = re.search(
            r'^fleet_runs\{model="large",status="waiting"\} (\d+)$', text, re.MULTILINE
        )
        return int(match[1]) if match else 0

    assert waiting(page) == waiting(before) + 1
    assert 'fleet_runs{model="small",status="done"} 1\n' in page
    assert re.search(r"^fleet_run_seconds_count [1-9]", page, re.MULTILINE)
    lines = [line for line in page.splitlines() if not line.startswith("# TYPE ")]
    assert all(re.fullmatch(r"\w+(\{.+\})? [\d.]+", line) for line in lines)


# ---- the one command


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@contextmanager
def started(folder, *arguments, kill=signal.SIGTERM, recipes=FOLDER):
    """Start the command and yield a client; afterwards stop it and check its output for errors."""
    port = free_port()
    ours = {"PYTHONPATH": str(ROOT), "PORT": port, "PGPORT": free_port(), "HOME": str(folder)}
    environment = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"} | ours
    command = [sys.executable, "-W", "error", str(recipes / "fleet_api.py"), *arguments]
    with (folder / "output").open("w+") as output:
        pipes = {"stdout": output, "stderr": output}
        process = subprocess.Popen(command, cwd=folder, env=environment, **pipes)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                while not is_up(client):
                    assert process.poll() is None, (folder / "output").read_text()
                    time.sleep(0.1)
                yield client
        finally:
            process.send_signal(kill)
            process.wait(60)
        assert "Traceback" not in (folder / "output").read_text()


def is_up(client):
    try:
        return client.get("/metrics").is_success
    except httpx.TransportError:
        return False


def do_a_run(client):
    run = client.post("/runs", json=QUESTION).json()["id"]
    assert client.get(f"/runs/{run}/events").text.endswith('event: End\ndata: "done"\n\n')
    assert client.get(f"/runs/{run}").json()["answer"] == "A1 is booked."


def processes_with(path):
    """Return the processes that have a file open."""
    pids = []
    for files in sorted(Path("/proc").glob("[0-9]*/fd")):
        try:
            if any(os.readlink(link) == str(path) for link in files.iterdir()):
                pids.append(files.parent.name)
        except OSError:
            continue  # the process has ended, or belongs to another user
    return pids


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_one_command_starts_workers_and_front_on_sqlite_and_ctrl_c_ends_them(tmp_path):
    with started(tmp_path, kill=signal.SIGINT) as client:
        do_a_run(client)
        assert processes_with(tmp_path / "fleet.sqlite")
    assert processes_with(tmp_path / "fleet.sqlite") == []


@pytest.mark.slow
def test_the_command_ends_while_a_client_follows_a_run(tmp_path):
    from dbos import DBOSClient

    with ExitStack() as afterwards, started(tmp_path) as client:
        database = DBOSClient(system_database_url=f"sqlite:///{tmp_path}/fleet.sqlite")
        nobody = {"queue_name": "nobody", "workflow_name": "answer", "workflow_id": "small-1"}
        database.enqueue(nobody, "small", "A1")
        database.destroy()
        follow = httpx.stream("GET", client.base_url.join("/runs/small-1/events"), timeout=60)
        assert afterwards.enter_context(follow).is_success


BLOCKED = """
@tool("Book a room")
async def book(room: str) -> str:
    if "/" in room:
        with open(room, "x"):  # a second call would fail
            await asyncio.sleep(3600)
    return f"{room} is booked."
"""


def kill_worker(folder, name):
    """Kill the process of a worker of the fleet in a folder with SIGKILL."""
    command = [b"work", name.encode(), b"below", b""]
    for process in sorted(Path("/proc").glob("[0-9]*")):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_ours = words[-4:] == command and os.readlink(process / "cwd") == str(folder)
        except OSError:
            continue  # the process has ended, or belongs to another user
        if is_ours:
            os.kill(int(process.name), signal.SIGKILL)
            return
    raise AssertionError(f"no worker {name}")


def wait_for(client, path, is_done):
    """Repeat a request until its answer is as expected, limited by the timeout of the test."""
    while not is_done(answer := client.get(path)):
        time.sleep(0.1)
    return answer


@pytest.mark.timeout(100)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_killed_worker_is_detected_and_its_run_continues_on_another_worker(database):
    if database == "postgres" and not Postgres.find("initdb"):
        pytest.skip("there is no Postgres: install the package postgresql")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # root starts Postgres as another user, who must be able to enter
        kill_a_worker_during_a_run(folder, database)


def kill_a_worker_during_a_run(folder, database):
    for name in ("fleet.py", "fleet_api.py"):
        (folder / name).write_text((FOLDER / name).read_text())
    source = (folder / "fleet.py").read_text()
    before, rest = source.split('@tool("Book a room")\n')
    after = rest.split(' is booked."\n', 1)[1]
    (folder / "fleet.py").write_text(before + BLOCKED + after)
    with started(folder, database, recipes=folder) as client:
        question = {"model": "small", "prompt": str(folder / "A1")}
        path = f"/runs/{client.post('/runs', json=question).json()['id']}"
        wait_for(client, path, lambda _: (folder / "A1").exists())
        worker = client.get(path).json()["worker"]
        assert 'fleet_workers{state="lost"} 0' in client.get("/metrics").text
        kill_worker(folder, worker)
        run = wait_for(client, path, lambda answer: answer.json()["ended"]).json()
        assert (run["status"], run["worker"] == worker) == ("outcome_unknown", False)
        assert "its outcome is unknown" in run["answer"]
        do_a_run(client)
        for status, count in (("outcome_unknown", 1), ("done", 1), ("failed", 0)):
            assert len(client.get("/runs", params={"status": status}).json()) == count
        page = client.get("/metrics").text
        assert 'fleet_workers{state="alive"} 1\nfleet_workers{state="lost"} 1\n' in page
        assert 'fleet_runs{model="small",status="outcome_unknown"} 1\n' in page
        assert f'fleet_heartbeat_age_seconds{{worker="{worker}"}}' in page
    assert (
        f"worker {worker} is lost: others continue its runs (1)" in (folder / "output").read_text()
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_workers_end_if_the_command_is_killed_and_the_command_can_restart(tmp_path):
    with started(tmp_path, kill=signal.SIGKILL) as client:
        do_a_run(client)
    end = time.monotonic() + 30
    while processes_with(tmp_path / "fleet.sqlite") and time.monotonic() < end:
        time.sleep(0.1)
    assert processes_with(tmp_path / "fleet.sqlite") == []
    with started(tmp_path) as client:
        do_a_run(client)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="two may have one port there")
def test_a_second_command_on_the_same_port_starts_no_worker(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ours = {"PYTHONPATH": str(ROOT), "PORT": str(taken.getsockname()[1])}
        environment = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"} | ours
        command = [sys.executable, str(FOLDER / "fleet_api.py")]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False
        )
    assert ended.returncode
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Postgres is not started so there")
def test_one_command_starts_the_fleet_on_postgres_and_keeps_the_runs():
    if not Postgres.find("initdb"):
        pytest.skip("there is no Postgres: install the package postgresql")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # root starts Postgres as another user, who must be able to enter
        with started(folder, "postgres", kill=signal.SIGKILL) as client:
            do_a_run(client)
        with started(folder, "postgres") as client:
            [run] = client.get("/runs").json()
            assert run["status"] == "done"
            do_a_run(client)
        assert not (folder / "fleet-postgres" / "postmaster.pid").exists()
