"""What the library itself costs: its time and memory, as ratios to a loop written by hand.

python -m tests.benchmarks.speed [--quick]

The model is a script on loopback, in a process of its own. A round measures the floor and agentloop
in turn, each in fresh processes on one core where the platform can; a ratio is that within a round,
and medians are printed. Rounds end before two minutes are over. `--quick` is one small round, which
shows that the benchmark works and no more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TypeAlias

from .speed_worker import QUICK, Measures, Sizes

ROOT = Path(__file__).parent.parent.parent
ROUNDS = 7
SECONDS = 100  # no round begins that would end later
SIDES = ("floor", "agentloop")
PROCESSES = [  # the tasks that share a process
    ["crowd"],
    ["calls", "text"],
    ["growing"],
    ["wires"],
]

Round: TypeAlias = dict[str, Measures]  # by side

START = {  # programs that build an agent with one tool and its model
    "floor": """
import asyncio, sys
from functools import partial
from tests.benchmarks.speed_floor import ask, connect, loop

async def note(number: int) -> str:
    "Take a note."
    return "noted"

client = connect(sys.argv[1])
def run(): return asyncio.run(loop(partial(ask, client), "script", [note], "note-1-1-0"))
""",
    "agentloop": """
import sys
from agentloop import Agent, ChatOpenAI, tool

@tool
async def note(number: int) -> str:
    "Take a note."
    return "noted"

llm = ChatOpenAI("script", base_url=sys.argv[1], api_key="none")
agent = Agent(llm=llm, tools=[note])
def run(): return agent.run_sync("note-1-1-0").text
""",
}
RUN = "\nif run() != 'done': raise SystemExit('no answer')"
IMPORT = "from agentloop import Agent, tool"
LEAVE = "\nimport os; os._exit(0)"  # how long an interpreter takes to end is not measured

ROWS = {
    "build": "import, and build an agent with a tool and its model, ms",
    "import": "`from agentloop import Agent, tool`, ms",
    "answer": "import, build, and a first run with one tool call, ms",
    "call": "{calls} tool calls: CPU per model call, ms",
    "streamed call": "the same, streamed: CPU per model call, ms",
    "chunk": "a text in {chunks:,} chunks at once: CPU per chunk, µs",
    "first text": "from the first byte of text to its reader, ms",
    "last page": "{pages} results of 1 KB in one run: the last step, ms",
    "all pages": "the same: the whole run, s",
    "crowd cpu": "{agents} agents at once: CPU per model call, ms",
    "crowd memory": "the same: memory per agent, KB",
    "anthropic": "a request of {pages} turns: ChatAnthropic to ChatOpenAI, CPU ms",
    "google": "the same: ChatGoogle to ChatOpenAI, CPU ms",
}


# ---- processes


def environment() -> dict[str, str]:
    """This one without proxies, which have no place between two processes."""
    return {name: v for name, v in os.environ.items() if not name.lower().endswith("_proxy")}


def cores() -> list[int]:
    """The cores that this process may use; none where it cannot be bound to one."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []


def pin(process: int, core: int) -> None:
    with suppress(OSError):  # some sandboxes forbid it
        os.sched_setaffinity(process, {core})


@contextmanager
def serving(core: int | None = None) -> Iterator[str]:
    """The URL of a scripted server, which gets that core, and ends when its stdin is closed."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.speed_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        try:
            port = int(server.stdout.readline())
            if core is not None:
                pin(server.pid, core)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.stdin.close()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()


def python(*arguments: str) -> str:
    """What a fresh interpreter prints. RuntimeError: it failed, with the end of its errors."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments[:3]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def start_up(code: str, url: str) -> float:
    """The seconds of a fresh interpreter for this program."""
    start = time.perf_counter()
    python("-c", code + LEAVE, url)
    return time.perf_counter() - start


# ---- measuring


def starts(url: str) -> Round:
    """Milliseconds of each start, without those of an interpreter with nothing to do."""
    nothing = start_up("pass", url)
    found: Round = {side: {} for side in SIDES}
    for side in SIDES:
        found[side]["build"] = 1e3 * (start_up(START[side], url) - nothing)
    for side in SIDES:
        found[side]["answer"] = 1e3 * (start_up(START[side] + RUN, url) - nothing)
    found["agentloop"]["import"] = 1e3 * (start_up(IMPORT, url) - nothing)
    return found


def measure(url: str, sizes: Sizes, processes: Sequence[Sequence[str]]) -> Round:
    """Both sides in turn, for each group of tasks in a process of its own."""
    found = starts(url)
    for tasks in processes:
        for side in SIDES:
            worker = ["-m", "tests.benchmarks.speed_worker", side, url, json.dumps(asdict(sizes))]
            found[side] |= json.loads(python(*worker, *tasks))
    return found


def quick_round(url: str) -> Round:
    """A small round with all tasks of a side in one process."""
    return measure(url, QUICK, [list(chain(*PROCESSES))])


def rounds(url: str) -> Iterator[Round]:
    """The rounds, and fewer if the time runs out."""
    began = time.perf_counter()
    for number in range(1, ROUNDS + 1):
        print(f"round {number} of {ROUNDS}", file=sys.stderr, flush=True)
        yield measure(url, Sizes(), PROCESSES)
        if (time.perf_counter() - began) * (number + 1) / number > SECONDS:
            return


# ---- the table


def ratio(found: Sequence[Round], name: str) -> float | None:
    """The median of agentloop to the floor in each round; None if a round has no floor for it."""
    pairs = [(each["floor"].get(name), each["agentloop"].get(name)) for each in found]
    ratios = [ours / floor for floor, ours in pairs if floor and ours is not None]
    return median(ratios) if ratios else None


def middle(found: Sequence[Round], side: str, name: str) -> float | None:
    values = [each[side][name] for each in found if name in each[side]]
    return median(values) if values else None


def shown(value: float | None) -> str:
    """A number with three digits or so; a dash if there is none."""
    if value is None:
        return "–"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def table(found: Sequence[Round], sizes: Sizes) -> str:
    """The medians as markdown."""
    lines = ["| measure | floor | agentloop | ratio |", "| --- | ---: | ---: | ---: |"]
    for name, label in ROWS.items():
        values = (*(middle(found, side, name) for side in SIDES), ratio(found, name))
        lines.append(f"| {label.format(**asdict(sizes))} | {' | '.join(map(shown, values))} |")
    return "\n".join(lines)


def machine() -> str:
    return f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.platform()}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.speed")
    parser.add_argument(
        "--quick", action="store_true", help="one small round, to see that it works"
    )
    quick = parser.parse_args(argv).quick
    began = time.perf_counter()
    if own := cores():  # this process and those that it starts have the first, the server the last
        pin(0, own[0])
    with serving(own[-1] if own else None) as url:
        python("-c", START["agentloop"] + RUN, url)  # so that all is compiled
        found = [quick_round(url)] if quick else list(rounds(url))
    print(table(found, QUICK if quick else Sizes()))
    took = time.perf_counter() - began
    print(f"\n{machine()}; rounds: {len(found)}, in {took:.0f} s")


if __name__ == "__main__":
    main()
