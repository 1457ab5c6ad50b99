"""The overhead of Durable: runs with and without the mixin, on the same workers.

    python -m tests.benchmarks.durable [--quick] [--url postgresql+psycopg://...]

Without a URL, the benchmark starts a Postgres server, or uses SQLite if Postgres is not installed.
The model answers immediately and the tool does nothing, so that only the library, DBOS and the
database are measured. With Postgres, the output also contains the cost of a row and the needs of
1,000 workers.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from dbos import DBOS
from sqlalchemy import create_engine, text

from agentloop import Agent, AssistantMessage, ScriptedModel, tool
from agentloop.mixins.durable import Durable
from agentloop.models.scripted import call

TURNS = 10
WORKERS = (1, 2, 4)
ROWS = 3  # per turn: one for the request, two for the call
COUNTERS = """SELECT (SELECT count(*) FROM dbos.operation_outputs), xact_commit,
    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'), pg_database_size(datname)
    FROM pg_stat_database WHERE datname = current_database()"""


@tool
async def nothing(n: int) -> str:
    """Do nothing."""
    return "x" * 500


def think(messages, tools):
    turn = sum(isinstance(message, AssistantMessage) for message in messages)
    return call("nothing", n=turn) if turn < TURNS else "done"


class Worker(Agent, Durable):
    pass


async def plain():
    llm = ScriptedModel(*[think] * (TURNS + 1))
    return await Worker(llm=llm, tools=[nothing]).query("Go.")


durable = DBOS.workflow()(plain)


async def run_all(work, runs):
    """Return the seconds and the CPU seconds of these runs, 20 at a time."""
    slots = asyncio.Semaphore(20)

    async def one():
        async with slots:
            await work()

    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*[one() for _ in range(runs)])
    return time.perf_counter() - start, time.process_time() - cpu


def work_on(url, name, runs, barrier, results):
    config = {"name": "benchmark", "system_database_url": url, "executor_id": name}
    DBOS(config=config | {"application_version": "1", "log_level": "ERROR"})
    DBOS.launch()
    measured = []
    for work in (plain, durable):
        asyncio.run(run_all(work, 1))  # warm-up
        barrier.wait()
        measured.append(asyncio.run(run_all(work, runs if work is durable else 10 * runs)))
    results.put(measured)
    os._exit(0)


def measure(url, workers, runs):
    """Return steps per second and CPU milliseconds per step, of plain and of durable runs."""
    forked = multiprocessing.get_context("spawn")
    barrier, results = forked.Barrier(workers), forked.SimpleQueue()
    shared = runs, barrier, results
    arguments = [(url, f"w{n}", *shared) for n in range(workers)]
    processes = [forked.Process(target=work_on, args=each) for each in arguments]
    for process in processes:
        process.start()
    measured = [results.get() for _ in processes]
    for process in processes:
        process.join()
    steps = runs * (2 * TURNS + 1) * workers
    for at, factor in ((0, 10), (1, 1)):
        seconds = max(each[at][0] for each in measured)
        cpu = sum(each[at][1] for each in measured)
        yield factor * steps / seconds, 1000 * cpu / (factor * steps)


def counters(url, first="SELECT 1"):
    """Return the current rows, transactions, bytes of write-ahead log and bytes on disk."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(first))
        found = [float(count) for count in connection.execute(text(COUNTERS)).one()]
    engine.dispose()
    return found


def on_paper(rows, transactions, log, disk, workers=1_000, runs=20, seconds=5, texts=4_000):
    """Return the needs of a fleet whose turns have one call, of this duration and text."""
    turns = workers * runs / seconds
    a_row = turns * ROWS / rows
    yield f"a row: {transactions / rows:.1f} transactions, {log / rows / 1e3:.1f} KB of log, "
    yield f"{disk / rows / 1e3:.2f} KB on disk\n{workers:,} workers: {turns * ROWS:,.0f} rows/s, "
    yield f"{a_row * log / 1e6:,.0f} MB/s of log, {a_row * transactions:,.0f} transactions/s, "
    yield f"{(a_row * disk + turns * texts * 4 / 3) * 86_400 / 1e12:.1f} TB/day on disk"


def database(stack):
    from tests.library.mixins.test_durable import Postgres

    folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    if not Postgres.find("initdb"):
        return f"sqlite:///{Path(folder, 'benchmark.sqlite')}"
    server = Postgres(folder)
    stack.callback(server.stop)
    return f"postgresql+psycopg://postgres@127.0.0.1:{server.port}/benchmark"


def main(arguments):
    runs = 4 if "--quick" in arguments else 40
    with ExitStack() as stack:
        given = "--url" in arguments
        url = arguments[arguments.index("--url") + 1] if given else database(stack)
        print("| workers | steps/s plain | durable | ratio | CPU ms/step plain | durable | ratio |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for workers in WORKERS:
            (fast, cpu), (slow, more) = measure(url, workers, runs)
            cells = f"{fast:,.0f} | {slow:,.0f} | {slow / fast:.3f} | {cpu:.2f} | {more:.2f}"
            print(f"| {workers} | {cells} | {more / cpu:.0f} |", flush=True)
            if workers == 1 and url.startswith("postgresql"):
                before = counters(url, "CHECKPOINT")  # afterwards, each page is logged completely
        print(f"\n{url.partition('+')[0].partition(':')[0]}, {os.cpu_count()} cores")
        if url.startswith("postgresql"):
            after = counters(url)
            print(*on_paper(*[b - a for a, b in zip(before, after, strict=True)]), sep="")


if __name__ == "__main__":
    main(sys.argv[1:])
