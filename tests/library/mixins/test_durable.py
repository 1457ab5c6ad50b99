"""Durable: a run in a DBOS workflow survives a kill at any step and repeats no side effect."""

import asyncio
import inspect
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentloop import AssistantMessage, Loop, RunStopped, ScriptedModel, ToolMessage, call, tool
from agentloop.common.store import read_log
from agentloop.events import TextEvent
from agentloop.mixins.durable import Durable
from agentloop.transcript import Conversation, SideRequest, view
from tests import some
from tests.core import test_loop
from tests.programs.recipes.test_recipes import OLD_SQLITE
from tests.recipes import load

dbos = pytest.importorskip("dbos")
if sys.platform == "win32":
    pytest.skip("the tests fork processes and kill them", allow_module_level=True)
worker = pytest.importorskip("tests.doubles.durable_worker")

forked = multiprocessing.get_context("forkserver")  # imports DBOS only once
forked.set_forkserver_preload([worker.__name__])
KILLS = int(os.environ.get("AGENTLOOP_KILLS", "20"))  # 200 kills take several minutes
EFFECTS = 24  # effects of a run without kills
ENDED = re.compile(r"(\?|paid 0) saw 0( (\?|paid \d)){7} \(\d+ tokens\)")


class TestDurable(test_loop.TestLoop):
    agent_class = Durable
    largest_fork = 1200  # includes the table of steps


def start(target, *arguments):
    process = forked.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def live(folder, at=0, runs=("one",), work=worker.live):
    """Return whether the runs completed, or the process killed itself at effect number `at`."""
    process = start(work, str(folder), url(folder), runs, at)
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


def url(folder):
    if OLD_SQLITE:
        pytest.skip("DBOS needs a newer SQLite; the tests with Postgres run")
    return f"sqlite:///{folder / 'dbos.sqlite'}"


def result(database, run="one"):
    client = dbos.DBOSClient(system_database_url=database)
    try:
        return client.retrieve_workflow(run).get_result()
    finally:
        client.destroy()


def lines(folder, name, pattern=".*"):
    path = folder / name
    text_lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in text_lines if re.match(pattern, line)]


def check(folder, kills, database=None, run="one"):
    """Check that the run completed correctly, without repeated side effects or duplicate events."""
    text = result(database or url(folder), run)  # waits for the result
    effects = Counter(lines(folder, "effects", rf"{run}\b"))
    twice = {effect: times - 1 for effect, times in effects.items() if times > 1}
    assert all(re.match(r"\S+ (ask|look) ", effect) for effect in twice), twice
    assert max(twice.values(), default=0) <= kills
    assert ENDED.fullmatch(text), text
    assert text.count("?") <= 4 * kills
    paid = {effect.partition(" ")[2] for effect in effects}
    assert paid.issuperset(re.findall(r"paid \d", text))
    events = Counter(lines(folder, "events", rf"{run} (ToolCall|ToolResult|Text|FinalR\w+)Event "))
    assert max(events.values()) == 1, events


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of a run without kills."""
    folder = tmp_path_factory.mktemp("whole")
    assert live(folder)
    return folder


def test_a_run_without_kills_works_as_without_a_workflow(whole):
    check(whole, 0)
    assert len(lines(whole, "effects")) == EFFECTS
    assert len(lines(whole, "events", "one (ToolResult|FinalResponse)Event")) == 9 + 1


# ---- killed runs


@pytest.mark.parametrize("first", some(range(1, 13), 2))
def test_a_run_killed_at_any_step_continues_from_that_step(tmp_path, whole, first):
    assert not live(tmp_path, first)
    assert not live(tmp_path, first + EFFECTS - 12)
    assert live(tmp_path)
    check(tmp_path, 2)
    if "?" not in result(url(tmp_path)):  # killed between two calls
        views = [view(read_log(folder / "one.jsonl")) for folder in (tmp_path, whole)]
        assert [message.text for message in views[0]] == [message.text for message in views[1]]


def test_a_call_that_was_killed_is_an_error_for_the_model(tmp_path):
    assert not live(tmp_path, 3)  # during the first calls
    assert live(tmp_path)
    results = [each for each in read_log(tmp_path / "one.jsonl") if isinstance(each, ToolMessage)]
    unknown = [each.is_error for each in results if "outcome is unknown" in each.text]
    assert unknown
    assert all(unknown)


def test_a_call_inside_an_idempotent_call_that_was_killed_does_not_run_again(tmp_path):
    assert not live(tmp_path, 1, work=worker.nest)  # during the first payment
    assert live(tmp_path, work=worker.nest)
    assert lines(tmp_path, "effects") == ["one pay 0"]
    assert "outcome is unknown" in result(url(tmp_path))


def test_a_run_in_which_a_tool_asked_for_a_summary_continues_after_a_kill(tmp_path):
    assert not live(tmp_path, 6, work=worker.compact_in_run)  # during the request after the summary
    assert live(tmp_path, work=worker.compact_in_run)
    assert result(url(tmp_path)) == "The end."
    assert len(lines(tmp_path, "effects", "one ask .* Your")) == 1


def test_in_a_replay_a_call_that_ends_the_run_keeps_the_same_calls_from_starting(tmp_path):
    assert not live(tmp_path, 7, work=worker.retry)  # during the request of the second run
    assert live(tmp_path, work=worker.retry)
    effects = Counter(lines(tmp_path, "effects", "one pa"))
    assert len(effects) == 6
    assert max(effects.values()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS // 5))
def test_concurrent_runs_that_are_killed_repeatedly_complete_correctly(tmp_path, seed):
    chance, at, runs = random.Random(seed), 0, ["one", "two", "three"]
    for _ in range(5):
        at += chance.randint(1, len(runs) * EFFECTS // 5)
        assert not live(tmp_path, at, runs)
    assert live(tmp_path, 0, runs)
    for run in runs:
        check(tmp_path, 5, run=run)


def test_the_session_of_a_killed_run_is_complete_and_can_be_replayed(tmp_path, whole):
    assert not live(tmp_path, 1)
    assert not live(tmp_path, 7)  # during the second request to the model
    assert live(tmp_path)
    logs = [read_log(folder / "one.jsonl") for folder in (tmp_path, whole)]
    kinds = [Counter(type(record).__name__ for record in log) for log in logs]
    assert kinds[0] == kinds[1]

    def stand_in(name, done):
        def run(n: int) -> str:
            return f"{done} {n}"

        return tool("Do", name=name, parallel=name != "delegate")(run)

    tools = [stand_in("pay", "paid"), stand_in("look", "saw"), stand_in("delegate", "paid")]
    script = [
        AssistantMessage(request.content, getattr(request, "tool_calls", ()), usage=request.usage)
        for request in Conversation(logs[0]).catch_up().requests
        if not isinstance(request, SideRequest)
    ]
    agent = worker.Careful(llm=ScriptedModel(*script), tools=tools)
    assert agent.run_sync("Pay them.").text in result(url(tmp_path))


def test_in_a_replay_a_stream_gets_every_event_again_and_a_listener_only_new_ones(tmp_path):
    assert not live(tmp_path, 3, work=worker.stream)  # during the second request to the model
    assert live(tmp_path, work=worker.stream)
    text = "seen, read ['look', 'done'], told ['done'] 'All is seen.'"
    assert result(url(tmp_path)) == text


# ---- errors and misuse


def test_errors_name_their_cause_and_a_cancelled_run_can_be_resumed(tmp_path):
    assert live(tmp_path, work=worker.misuse)
    errors = lines(tmp_path, "errors")
    assert "live is not a registered workflow function" in errors[0]
    assert errors[1].startswith("RunStopped: limit:requests: ")
    with pytest.raises(RunStopped, match="limit:requests"):  # also in another process
        result(url(tmp_path), "limited")
    assert "cancelled" in errors[-2]
    assert errors[-1] == "done"
    with pytest.raises(Exception, match="unable to open database"):
        dbos.DBOSClient(system_database_url=url(tmp_path / "none")).check_connection()


def test_an_agent_can_be_forked_in_a_workflow_after_a_run(tmp_path):
    assert live(tmp_path, work=worker.branch)
    [line] = lines(tmp_path, "effects")
    assert line == "answers ['one', 'two'], told ['one', 'two']"


@pytest.mark.parametrize("change", [worker.reordered, worker.reworded])
def test_recovery_by_a_changed_program_ends_with_an_error_that_names_both_steps(tmp_path, change):
    assert not live(tmp_path, 5)
    assert live(tmp_path, work=change)
    with pytest.raises(Exception, match="'Worker'.*'Worker'"):
        result(url(tmp_path))


def test_a_newer_database_schema_works_unless_a_required_column_is_missing(tmp_path, whole):
    shutil.copy(whole / "dbos.sqlite", tmp_path)
    for change, error in (
        ("UPDATE dbos_migrations SET version = 999", ""),
        ("ALTER TABLE workflow_status RENAME COLUMN output TO outcome", "no such column: .*output"),
    ):
        with closing(sqlite3.connect(tmp_path / "dbos.sqlite")) as database:
            database.execute(change)
            database.commit()
        with pytest.raises(Exception, match=error) if error else nullcontext():
            assert result(url(tmp_path))


async def test_outside_a_workflow_a_run_is_like_that_of_any_other_agent():
    heard = []
    agent = Durable(llm=ScriptedModel("hi"), listeners=[heard.append])
    assert await agent.query("x") == "hi"
    assert any(isinstance(event, TextEvent) for event in heard)


async def test_steps_have_the_order_of_the_calls_whichever_call_starts_first(monkeypatch):
    steps = []

    class Step:
        name, step_id = "", 1

        async def run_async(self, options, work):
            self.name, DBOS.step_id = options["name"], 1
            done = work()
            result = await done if inspect.isawaitable(done) else done
            DBOS.step_id = None
            return result

    class DBOS:
        workflow_id, step_id = "w", None

        @staticmethod
        def reserve_step():
            steps.append(Step())
            return steps[-1]

    class Hesitant(Loop):
        async def call_tool(self, call):
            for _ in range(9 if call.name == "first" else 0):
                await asyncio.sleep(0)
            return await super().call_tool(call)

    class Agent(Hesitant, Durable): ...

    monkeypatch.setitem(sys.modules, "dbos", SimpleNamespace(DBOS=DBOS))
    tools = [tool("Do", name=name)(lambda: "ok") for name in ("first", "second")]
    await Agent(llm=ScriptedModel([call("first"), call("second")], "ok"), tools=tools).run("x")
    names = [step.name for step in steps if step.name and not step.name.startswith("model")]
    assert names == ["start first", "first", "start second", "second"]


def test_without_dbos_the_error_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dbos", None)
    with pytest.raises(ImportError, match="dbos>="):
        Durable(llm=ScriptedModel("x")).run_sync("x")


def test_a_parallel_workflow_tool_is_rejected():
    with pytest.raises(ValueError, match="'look' .*parallel=False"):
        Durable(llm=ScriptedModel(), tools=[worker.look], workflow_tools=["look"])


# ---- a fleet on Postgres


class Postgres:
    """A server on loopback with a separate data folder."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.su = folder, []
        if os.getuid() == 0:  # Postgres refuses to run as root
            shutil.chown(folder, "postgres")
            self.su = ["runuser", "-u", "postgres", "--"]
        self.run("initdb", "-U", "postgres", "-A", "trust", "--no-sync")
        self.start()

    @staticmethod
    def find(program):
        places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
        return shutil.which(program) or (str(places[-1]) if places else None)

    def run(self, program, *arguments):
        command = [*self.su, self.find(program), "-D", f"{self.folder}/data", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=100)

    def start(self):
        options = f"-h 127.0.0.1 -p {self.port} -k {self.folder} -F"
        self.run("pg_ctl", "-w", "-l", f"{self.folder}/log", "-o", options, "start")

    def stop(self):
        self.run("pg_ctl", "-m", "immediate", "stop")


@pytest.fixture(scope="module")
def postgres():
    if not Postgres.find("initdb") or (os.getuid() == 0 and not shutil.which("runuser")):
        pytest.skip("Postgres is not installed: install the package postgresql")
    with tempfile.TemporaryDirectory() as folder:
        server = Postgres(folder)
        yield server
        server.stop()


class Fleet:
    """Worker processes that share one database and execute its runs."""

    def __init__(self, folder, postgres, runs):
        self.folder, self.processes = folder, {}
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{postgres.port}/{folder.name}"
        self.runs = [f"run{n}" for n in range(runs)]

    def __enter__(self):
        self.start("a")
        while not (self.folder / "ready").exists():  # written after the creation of the tables
            time.sleep(0.05)
        self.client = dbos.DBOSClient(system_database_url=self.url)
        options = {"queue_name": worker.QUEUE, "workflow_name": "work"}
        for run in self.runs:
            self.client.enqueue({**options, "workflow_id": run})
            self.client.send(run, "yes", "leave")
        while len(lines(self.folder, "effects")) < 4:
            time.sleep(0.05)
        return self

    def __exit__(self, *error):
        for name in self.processes:
            self.kill(name)
        self.client.destroy()

    def start(self, name):
        self.processes[name] = start(worker.serve, str(self.folder), self.url, name)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].join()

    def is_active(self):
        workflows = self.client.list_workflows(workflow_ids=self.runs)
        return any(run.status in ("ENQUEUED", "PENDING") for run in workflows)

    def check(self, kills):
        for run in self.runs:
            check(self.folder, kills, self.url, run)


@pytest.mark.slow
@pytest.mark.timeout(300 + 10 * KILLS)
def test_four_workers_with_a_kill_every_second_complete_all_runs(tmp_path, postgres):
    with Fleet(tmp_path, postgres, KILLS) as fleet:
        for name in "bcd":
            fleet.start(name)
        kills = 0
        while fleet.is_active():
            time.sleep(1)
            if kills < KILLS:  # with more, the runs never complete on a slow machine
                fleet.kill("abcd"[kills % 4])
                fleet.start("abcd"[kills % 4])
                kills += 1
        print(f"{kills} kills, {len(fleet.runs)} runs")
        fleet.check(kills)


@pytest.mark.slow
def test_the_runs_of_a_lost_worker_are_taken_over_by_another_worker(tmp_path, postgres):
    with Fleet(tmp_path, postgres, 2) as fleet:
        fleet.kill("a")
        fleet.start("b")
        assert {*load("fleet").take_over(fleet.client, "a")} >= {"run0", "run1"}
        fleet.check(1)


@pytest.mark.slow
def test_runs_survive_ten_seconds_without_postgres(tmp_path, postgres):
    with Fleet(tmp_path, postgres, 4) as fleet:
        postgres.stop()
        time.sleep(10)
        postgres.start()
        fleet.check(0)
