"""The time and the memory of the library, as ratios to a hand-written loop.

python -m tests.benchmarks.speed [--quick] [--mixins]

The model is a script on loopback, in a separate process. A round measures the floor and agentloop
alternately, in new processes on one core if the platform permits; ratios are computed within a
round, and the medians are printed. Rounds end within two minutes. `--quick` is one small round,
which only tests the benchmark. `--mixins` compares turns with each mixin.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests import ROOT

from .speed_worker import QUICK, TASKS, Sizes

ROUNDS = 7
SECONDS = 100  # no round starts that would end later
SIDES = ("floor", "agentloop")
PROCESSES = [
    ["crowd"],
    ["secure"],
    ["calls", "text"],
    ["growing"],
    ["wires"],
    ["turns"],
]  # tasks in one process
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
LEAVE = "\nimport os; os._exit(0)"  # excludes the exit of the interpreter

ROWS = {
    "build": "import, and build an agent with a tool and its model, ms",
    "import": "`from agentloop import Agent, tool`, ms",
    "answer": "import, build, and a first run with one tool call, ms",
    "call": "{calls} tool calls: CPU per model call, ms",
    "streamed call": "the same, streamed: CPU per model call, ms",
    "chunk": "a text in {chunks:,} chunks at once: CPU per chunk, µs",
    "first text": "from the first byte of text to its reader, ms",
    "last page": "{pages} results of 1 KB in one run: the last step, CPU ms",
    "all pages": "the same: the whole run, CPU s",
    "crowd cpu": "{agents} agents at once: CPU per model call, ms",
    "crowd memory": "the same: memory per agent, KB",
    "tls cpu": "the same over TLS: CPU per model call, ms",
    "tls connections": "the same over TLS: connections per agent",
    "anthropic": "a request of {pages} turns: ChatAnthropic to ChatOpenAI, CPU ms",
    "google": "the same: ChatGoogle to ChatOpenAI, CPU ms",
    "long chat": "a request of {turns[1]:,} turns to `json.dumps`: Chat Completions, CPU ms",
    "long responses": "the same: Responses, CPU ms",
    "long anthropic": "the same: ChatAnthropic, CPU ms",
    "long google": "the same: ChatGoogle, CPU ms",
    "plain 0": "`Agent`: turn {turns[1]:,} to turn {turns[0]}, CPU ms",
    "plain 1": "the same: turn {turns[2]:,} to turn {turns[0]}, CPU ms",
    "pruned 0": "with an ephemeral tool: turn {turns[1]:,} to turn {turns[0]}, CPU ms",
    "pruned 1": "the same: turn {turns[2]:,} to turn {turns[0]}, CPU ms",
    "uncached 0": "the same without a cache: turn {turns[1]:,} to turn {turns[0]}, CPU ms",
    "uncached 1": "the same: turn {turns[2]:,} to turn {turns[0]}, CPU ms",
    "gated 0": "with `Hooks` and `Approval`: turn {turns[1]:,} to turn {turns[0]}, CPU ms",
    "gated 1": "the same: turn {turns[2]:,} to turn {turns[0]}, CPU ms",
    "everything 0": "with every mixin: turn {turns[1]:,} to turn {turns[0]}, CPU ms",
    "everything 1": "the same: turn {turns[2]:,} to turn {turns[0]}, CPU ms",
    "everything uncached 0": "the same, no cache: turn {turns[1]:,} to turn {turns[0]}, CPU ms",
    "everything uncached 1": "the same: turn {turns[2]:,} to turn {turns[0]}, CPU ms",
}


# ---- processes


def cores():
    """Return the cores of this process; none if the process cannot be bound to a core."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []


def pin(process, core):
    with suppress(OSError):  # forbidden in some sandboxes
        os.sched_setaffinity(process, {core})


tls = {}  # environment of processes that connect to the server with TLS


def make_certificate(folder):
    """Create a certificate for loopback and its key; return the path, or None without openssl."""
    path = Path(folder) / "loopback.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", path, "-out", f"{path}.crt"]
    with suppress(OSError, subprocess.CalledProcessError):
        subprocess.run(command, check=True, capture_output=True)
        path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
        return path
    return None


@contextmanager
def serving(core=None):
    """Yield the URL of a scripted server on a core; the server ends when its stdin is closed.

    Processes started by `python` in the meantime find the TLS address in `SPEED_TLS_URL`.
    """
    command = [sys.executable, "-m", "tests.benchmarks.speed_server"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        if certificate := make_certificate(folder):
            command.append(str(certificate))
        server = stack.enter_context(subprocess.Popen(command, cwd=ROOT, **pipes))
        try:
            port, *secure = server.stdout.readline().split()
            if secure:
                url = f"https://127.0.0.1:{secure[0]}/v1"
                tls.update(SPEED_TLS_URL=url, SSL_CERT_FILE=str(certificate))
            if core is not None:
                pin(server.pid, core)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            tls.clear()
            server.stdin.close()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()


def python(*arguments):
    """Return the output of a new interpreter. Raises RuntimeError with its last errors."""
    # no proxy between two local processes
    env = {name: v for name, v in os.environ.items() if not name.lower().endswith("_proxy")}
    where = {"cwd": ROOT, "env": env | tls, "timeout": 100}
    done = subprocess.run([sys.executable, *arguments], **where, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{arguments[:3]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def start_up(code, url):
    """Return the seconds of a new interpreter for this program."""
    start = time.perf_counter()
    python("-c", code + LEAVE, url)
    return time.perf_counter() - start


# ---- measurement


def starts(url):
    """Return the milliseconds of each start, without those of an empty program."""
    nothing = start_up("pass", url)
    found = {side: {} for side in SIDES}
    for side in SIDES:
        found[side]["build"] = 1e3 * (start_up(START[side], url) - nothing)
    for side in SIDES:
        found[side]["answer"] = 1e3 * (start_up(START[side] + RUN, url) - nothing)
    found["agentloop"]["import"] = 1e3 * (start_up(IMPORT, url) - nothing)
    return found


def measure(url, sizes, processes):
    """Measure both sides alternately, with one process per group of tasks."""
    return measure_tasks(url, sizes, processes, starts(url))


def measure_tasks(url, sizes, processes, found=None):
    """Add the measures of these tasks to `found`."""
    found = found or {side: {} for side in SIDES}
    for tasks in processes:
        for side in SIDES:
            worker = ["-m", "tests.benchmarks.speed_worker", side, url, json.dumps(sizes._asdict())]
            found[side] |= json.loads(python(*worker, *tasks))
    return found


def rounds(url):
    """Yield the rounds; fewer if the time is over."""
    began = time.perf_counter()
    for number in range(1, ROUNDS + 1):
        print(f"round {number} of {ROUNDS}", file=sys.stderr, flush=True)
        yield measure(url, Sizes(), PROCESSES)
        if (time.perf_counter() - began) * (number + 1) / number > SECONDS:
            return


# ---- the table


def ratio(found, name):
    """Return the median ratio of agentloop to the floor; None if a round has no floor."""
    pairs = [(each["floor"].get(name), each["agentloop"].get(name)) for each in found]
    ratios = [ours / floor for floor, ours in pairs if floor and ours is not None]
    return median(ratios) if ratios else None


def middle(found, side, name):
    values = [each[side][name] for each in found if name in each[side]]
    return median(values) if values else None


def shown(value):
    """Return a number with about three digits, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def table(found, sizes, rows=ROWS):
    """Return the medians as markdown."""
    lines = ["| measure | floor | agentloop | ratio |", "| --- | ---: | ---: | ---: |"]
    for name, label in rows.items():
        values = (*(middle(found, side, name) for side in SIDES), ratio(found, name))
        lines.append(f"| {label.format(**sizes._asdict())} | {' | '.join(map(shown, values))} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.speed")
    what = "one small round, to see that it works"
    parser.add_argument("--quick", action="store_true", help=what)
    parser.add_argument("--mixins", action="store_true", help="turns with each mixin by itself")
    options = parser.parse_args()
    quick = options.quick
    began = time.perf_counter()
    if (
        own := cores()
    ):  # the first core is for this process and its children, the last for the server
        pin(0, own[0])
    with serving(own[-1] if own else None) as url:
        python("-c", START["agentloop"] + RUN, url)  # compiles all modules
        if options.mixins:
            found = [measure_tasks(url, QUICK if quick else Sizes(), [["each_mixin"]])]
            labels = "`{}`: turn {turns[2]:,} to turn {turns[0]}, CPU ms"
            rows = {name: labels.replace("{}", name) for name in found[0]["agentloop"]}
            print(table(found, QUICK if quick else Sizes(), rows))
            return
        found = [measure(url, QUICK, [[*TASKS]])] if quick else list(rounds(url))
    print(table(found, QUICK if quick else Sizes()))
    took = time.perf_counter() - began
    machine = f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.platform()}"
    print(f"\n{machine}; rounds: {len(found)}, in {took:.0f} s")


if __name__ == "__main__":
    main()
