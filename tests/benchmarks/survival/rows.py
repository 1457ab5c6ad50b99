"""The rows of the page: each does something to a program that pays, and lets it continue.

    python -m tests.benchmarks.survival.rows agentloop FILE    # one library, in its environment

The process that imports the library never runs it: each experiment happens in forks of that
process, the first of which suffers the fault. What counts is what the model's server received.
"""

import asyncio
import importlib
import json
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from contextlib import aclosing, suppress
from pathlib import Path

from . import server, world
from .world import DELEGATE, GO_ON, NOTE, PROMPT, Fault, add, lines

WAIT = 60.0  # seconds for a life
MOST = 24  # experiments of a row, evenly spaced over all possible ones


def some(cases):
    """Return all cases, or MOST of them."""
    cases = list(cases)
    if len(cases) <= MOST:
        return cases
    return [cases[at * (len(cases) - 1) // (MOST - 1)] for at in range(MOST)]


class Bench:
    """Runs experiments with one program."""

    def __init__(self, module, scratch):
        self.module, self.scratch = module, scratch
        self.log = scratch / "requests.jsonl"
        self.count = 0

    def new(self, **settings):
        """Prepare an experiment: an empty ledger, an empty folder, no fault."""
        self.count += 1
        self.folder = self.scratch / str(self.count)
        self.folder.mkdir()
        os.environ["SURVIVAL_FOLDER"] = str(self.folder)
        self.log.write_text("")
        world.clear(**settings)

    def live(self, body, *, is_second=False):
        """Run `await body()` in a fork. Return its exit status: negative if a signal killed it."""
        reader, writer = os.pipe()  # not a file: a full disk must not fail the output
        pid = os.fork()
        if pid:
            os.close(writer)
            status, output = wait(pid, reader)
            with (self.folder / "output").open("ab") as file:
                file.write(output)
            return status
        status = 1
        try:
            world.field(4, os.getpid())
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            os.chdir(self.folder)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full disk is an error, not a signal
            if is_second:
                Fault.disarm()
            elif Fault.kill_at_write:
                world.watch_writes()
            run(body)
            status = 0
        except BaseException:
            world.free_disk()
            text = traceback.format_exc()
            (self.folder / "error").write_text(text)
            os.write(1, text.encode())
        finally:
            os._exit(status)

    def outcome(self):
        """Return what an experiment shows; names of columns are keys."""
        ledger = lines()
        requests = [json.loads(line) for line in self.log.read_text().splitlines()]
        later = [entry for entry in requests if entry["after"]]
        if any("clerk" in entry["tools"] for entry in requests):
            later = [entry for entry in later if "pay" in entry["tools"]] or later
        paid = [line.split()[1] for line in ledger if line.startswith("effect")]
        found = {"twice": len(paid) - len({*paid}), "unpaid": len({*world.NAMES} - {*paid})}
        error = ""
        if (self.folder / "error").exists():
            error = (self.folder / "error").read_text().strip().splitlines()[-1][:300]
        if not later:
            return found | {
                "forgotten": 0,
                "returned": 0,
                "kept": 0,
                "invalid": error or "no request",
            }
        text = json.dumps(later[0]["messages"])
        before = ledger[: later[0]["ledger"]]
        effects = {line.split()[1] for line in before if line.startswith("effect")}
        returned = {line.split()[1] for line in before if line.startswith("returned")}
        found["forgotten"] = sum(name not in text for name in effects)
        found["kept"] = sum(f"R-{name}" in text for name in returned)
        found["returned"] = len(returned)
        found["invalid"] = later[0]["refused"] or ""
        if error and not found["invalid"]:
            found["error"] = error
        return found


def wait(pid, reader):
    """Return the exit status and the output of a child, which may live for WAIT seconds."""
    output, end = b"", time.monotonic() + WAIT
    os.set_blocking(reader, False)
    done, status, is_late = 0, 0, 0
    while not done:
        done, status = os.waitpid(pid, os.WNOHANG)
        with suppress(BlockingIOError):
            while data := os.read(reader, 65536):
                output += data
        if time.monotonic() > end and not is_late:
            is_late = 1000
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    os.close(reader)
    return os.waitstatus_to_exitcode(status) - is_late, output


class Turns(selectors.DefaultSelector):
    """Counts the turns of an event loop, each of which calls `select` once."""

    count, cancel_at, task = 0, 0, None

    def select(self, timeout=None):
        if self.task:
            self.count += 1
            if self.count == self.cancel_at:
                self.task.cancel()
                timeout = 0
        return super().select(timeout)


turns = None


def run(body):
    global turns
    turns = Turns()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
        runner.run(body())


async def survive(work):
    """Await something that may fail; print how."""
    try:
        await work
    except (Exception, asyncio.CancelledError):
        traceback.print_exc()  # to a pipe, also if the disk is full
        return False
    return True


# ---- the rows


def check(bench):
    """Raise an error unless the program pays each name once if nothing happens to it."""

    async def life():
        program = bench.module.Program()
        await program.send(PROMPT)
        add("after")
        await program.send(GO_ON)

    bench.new()
    status, found = bench.live(life), bench.outcome()
    if status or any(found[name] for name in ("twice", "unpaid", "forgotten", "invalid")):
        output = (bench.folder / "output").read_text()
        raise RuntimeError(f"the program fails without a fault: {found}, {lines()}, {output}")


def killed(bench, fault="", number=0):
    """Let the first life die of a fault; the second one continues. Return None if it didn't die."""
    program = bench.module.Program

    async def first():
        paying = program()
        Fault.is_watching = True
        await paying.send(PROMPT)

    async def second():
        add("after")
        again = program()
        await again.resume(PROMPT)
        if "request" not in lines()[lines().index("after") :]:
            await again.send(GO_ON)

    if fault:
        setattr(Fault, fault, number)
    if bench.live(first) != -signal.SIGKILL:
        return None
    bench.live(second, is_second=True)
    return bench.outcome()


def killed_at_a_step(bench):
    cases = [(name, n) for n in range(1, 6) for name in ("kill_before", "kill_after", "")]
    for name, number in some(cases):
        bench.new(kill=0 if name else number)  # without a name, during a request
        yield killed(bench, name, number)


def killed_at_a_write(bench):
    bench.new()
    Fault.kill_at_write = -1

    async def first():
        paying = bench.module.Program()
        Fault.is_watching = True
        await paying.send(PROMPT)

    bench.live(first)
    for number in some(range(1, world.field(5) + 1)):
        bench.new()
        yield killed(bench, "kill_at_write", number)


def continued(bench, fault, **settings):
    """In one life, do something to a program, then send the next prompt."""

    async def life():
        program = bench.module.Program(**settings)
        await survive(fault(program))
        add("after")
        await program.send(GO_ON)

    bench.live(life)
    return bench.outcome()


def cancelled(bench):
    async def cancel(program, at):
        turns.cancel_at, turns.count = at, 0
        turns.task = asyncio.ensure_future(program.send(PROMPT))
        try:
            await turns.task
        finally:
            world.field(2, turns.count)
            turns.task = None

    bench.new()
    continued(bench, lambda program: cancel(program, 0))
    for number in some(range(1, world.field(2) + 1)):
        bench.new()
        yield continued(bench, lambda program, number=number: cancel(program, number))


def left(bench):
    async def leave(program, at):
        seen = 0
        async with aclosing(program.stream(PROMPT)) as events:
            async for _ in events:
                seen += 1
                if seen == at:
                    break
        world.field(2, seen)

    bench.new()
    continued(bench, lambda program: leave(program, 0))
    for number in some(range(1, world.field(2) + 1)):
        bench.new()
        yield continued(bench, lambda program, number=number: leave(program, number))


def model_failed(bench):
    for number in some(range(1, 6)):
        bench.new(fail=number)
        yield continued(bench, lambda program: program.send(PROMPT))


def limited(bench):
    bench.new()
    yield continued(bench, lambda program: program.send(PROMPT), limit=3)


def decided(bench, make, prompt, allow, restart):
    """Let a run end with a pending call, decide, and continue."""

    async def decide(program):
        add("after")
        await program.decide(allow, NOTE)

    async def first():
        program = make()
        await program.send(prompt)
        if not restart:
            await decide(program)

    async def second():
        await decide(make())

    bench.new()
    bench.live(first)
    if restart:
        bench.live(second, is_second=True)
    found = bench.outcome()
    if not allow:
        found["unpaid"] -= 1
        found["twice"] += "effect Cleo" in lines()  # paid although denied
        text = bench.log.read_text()
        found["forgotten"] += NOTE not in text
    return found


def denied(bench):
    for restart in (False, True):
        yield decided(bench, lambda: bench.module.Program(ask="Cleo"), PROMPT, False, restart)


def sub_agent(bench):
    for allow in (True, False):
        yield decided(bench, bench.module.Boss, DELEGATE, allow, True)


def disk_full(bench):
    """The disk is full from an effect on, until the run ends. Then there's space again.

    After a failure, the same process continues, or a new one.
    """
    program = bench.module.Program

    async def first(restart):
        paying = program()
        is_done = await survive(paying.send(PROMPT))
        world.free_disk()
        if restart and not is_done:
            os._exit(3)
        add("after")
        await paying.send(GO_ON)

    async def second():
        add("after")
        again = program()
        await again.resume(PROMPT)
        if "request" not in lines()[lines().index("after") :]:
            await again.send(GO_ON)

    for number, restart in some([(n, restart) for n in (1, 3, 5) for restart in (False, True)]):
        bench.new()
        Fault.full_disk_at = number
        if bench.live(lambda restart=restart: first(restart)) == 3:
            bench.live(second, is_second=True)
        yield bench.outcome()


ROWS = {
    "step": (killed_at_a_step, ()),
    "write": (killed_at_a_write, ()),
    "cancel": (cancelled, ()),
    "leave": (left, ("Program.stream",)),
    "model": (model_failed, ()),
    "denied": (denied, ("Program.decide",)),
    "sub_agent": (sub_agent, ("Boss",)),
    "limit": (limited, ("Program.limited",)),
    "disk": (disk_full, ()),
}


def total(outcomes):
    """Add up the experiments of a row. None if there are none, as without a write to die at."""
    found = [outcome for outcome in outcomes if outcome]
    if not found:
        return None
    wrong = ("twice", "forgotten", "invalid", "unpaid")
    clean = [outcome for outcome in found if not any(outcome[name] for name in wrong)]
    row = {"runs": len(found), "clean": len(clean)}
    for name in ("twice", "forgotten", "invalid"):
        row[name] = sum(bool(outcome[name]) for outcome in found)
    for name in ("unpaid", "kept", "returned"):
        row[name] = sum(outcome[name] for outcome in found)
    errors = [outcome["invalid"] or outcome.get("error") for outcome in found]
    row["errors"] = sorted({error for error in errors if error})[:4]
    return row


def measure(name, file, only=()):
    """Write the rows of a program to a file. A row without the documented feature is None."""
    rows = json.loads(file.read_text()) if file.exists() else {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        log = Path(scratch, "requests.jsonl")
        log.touch()
        model = os.fork()
        if not model:
            server.serve(log)
        try:
            while not world.field(1):
                time.sleep(0.01)
            module = importlib.import_module(f".programs.{name}", __package__)
            bench = Bench(module, Path(scratch))
            check(bench)
            for row, (experiments, needs) in ROWS.items():
                if not only or row in only:
                    offered = getattr(module, "ROWS", ROWS)
                    is_offered = row in offered and all(has(module, need) for need in needs)
                    rows[row] = total(experiments(bench)) if is_offered else None
                    file.write_text(json.dumps(rows, indent=1))
                    print(name, row, rows[row], flush=True)
        finally:
            os.kill(model, signal.SIGKILL)
            os.waitpid(model, 0)


def has(module, path):
    thing = module
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing is not None


if __name__ == "__main__":
    program, file, *only = sys.argv[1:]
    MOST = int(os.environ.get("SURVIVAL_MOST", MOST))
    measure(program, Path(file), only)
