"""The measures of the speed benchmark in a new process: some tasks of one side.

python -m tests.benchmarks.speed_worker SIDE URL SIZES TASK...

SIDE is "floor" or "agentloop", SIZES the fields of `Sizes` as JSON. Prints the measures as JSON.
CPU is that of this process, without the server's. All imports of a side are in its class, so that
neither side loads the other's modules.
"""

import asyncio
import gc
import importlib
import json
import os
import sys
import time
import urllib.request
from functools import cache, partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

KILOBYTE = "What was found on this page. " * 35
CACHED = 19_000  # tokens of each request that are reported as cached


class Sizes(NamedTuple):
    """The sizes of the tasks."""

    calls: int = 50  # tool calls in one run
    chunks: int = 5000  # of a streamed text
    firsts: int = 7  # texts whose first piece is measured
    pages: int = 400  # calls whose results form a long history
    agents: int = 200  # concurrent
    steps: int = 5  # per concurrent agent
    turns: tuple[int, int, int] = (100, 2000, 5000)  # turns of one run that are compared


QUICK = Sizes(calls=5, chunks=100, firsts=2, pages=30, agents=10, steps=3, turns=(10, 20, 40))

# ---- the tools

pages_at = []


async def note(number: int) -> str:
    """Take a note."""
    return "noted"


async def page(number: int) -> str:
    """Read a page."""
    pages_at.append(time.process_time())
    return KILOBYTE


# ---- the sides: a prompt is a script for the server, and all runs of a side share connections


class Floor:
    def __init__(self, url):
        from . import speed_floor

        self.floor = speed_floor
        self.client = speed_floor.connect(url)

    async def run(self, script, tool, on_text=None):
        ask = partial(self.floor.ask, self.client)
        if on_text is not None:
            ask = partial(self.floor.ask_streaming, self.client, on_text)
        return await self.floor.loop(ask, "script", [tool], script)


class Agentloop:
    def __init__(self, url):
        import agentloop

        self.lib = agentloop
        self.llm = agentloop.ChatOpenAI("script", base_url=url, api_key="none")
        self.tool = cache(agentloop.tool)

    async def run(self, script, tool, on_text=None):
        window = self.lib.CompactionConfig(context_window=10_000_000)  # never exceeded
        tools = [self.tool(tool)]
        agent = self.lib.Agent(llm=self.llm, tools=tools, max_iterations=10_000, compaction=window)
        if on_text is None:
            return await agent.query(script)
        stream = agent.query_stream(script)
        async for event in stream:
            if isinstance(event, self.lib.TextDeltaEvent):
                on_text(event.content)
        return stream.result.text


# ---- the tasks


async def done(run):
    """Await a run, and check that it is complete."""
    if not (answer := await run).endswith("done"):
        raise RuntimeError(f"a run ended with {answer[-200:]!r}")


async def took(run):
    """Return the seconds of CPU of a run."""
    start = time.process_time()
    await done(run)
    return time.process_time() - start


def ignore(text):
    """Ignore a text."""


async def calls(side, sizes):
    script = f"note-{sizes.calls}-1-0"
    await done(side.run("note-5-1-0", note))
    await done(side.run("note-5-1-0", note, ignore))
    whole = await took(side.run(script, note))
    streamed = await took(side.run(script, note, ignore))
    asked = sizes.calls + 1
    return {"call": 1e3 * whole / asked, "streamed call": 1e3 * streamed / asked}


async def text(side, sizes):
    await done(side.run("text-0-50-0", note, ignore))
    seconds = await took(side.run(f"text-0-{sizes.chunks}-0", note, ignore))
    waits = [await first_text(side) for _ in range(sizes.firsts)]
    return {"chunk": 1e6 * seconds / sizes.chunks, "first text": median(waits)}


async def first_text(side):
    """Return the milliseconds from the first byte of text sent to the text received."""
    seen = []
    run = side.run("text-0-5-20", note, lambda text: seen.append((time.perf_counter_ns(), text)))
    await done(run)
    at, sent_at = seen[0]
    return (at - int(sent_at)) / 1e6


async def growing(side, sizes):
    await done(side.run("page-5-1-0", page))
    pages_at.clear()
    total = await took(side.run(f"page-{sizes.pages}-1-0", page))
    gaps = [after - before for before, after in zip(pages_at[-21:], pages_at[-20:], strict=False)]
    return {"last page": 1e3 * median(gaps), "all pages": total}


async def crowd(side, sizes):
    await done(side.run("note-5-1-0", note))
    script = f"note-{sizes.steps}-1-20"  # 20 ms per reply, so that the runs are concurrent
    gc.collect()
    start, before = time.process_time(), peak_memory()
    await asyncio.gather(*(done(side.run(script, note)) for _ in range(sizes.agents)))
    seconds, grown = time.process_time() - start, peak_memory() - before
    measures = {"crowd cpu": 1e3 * seconds / sizes.agents / (sizes.steps + 1)}
    return measures | ({"crowd memory": grown / sizes.agents} if before else {})


async def secure(side, sizes):
    """Measure the concurrent agents over TLS, where a handshake costs more than a request."""
    url = os.environ.get("SPEED_TLS_URL")
    if not url:
        return {}
    over_tls = type(side)(url)
    await done(over_tls.run("note-1-1-0", note))
    before = connections(url)
    measures = await crowd(over_tls, sizes)
    added = connections(url) - before
    return {"tls cpu": measures["crowd cpu"], "tls connections": added / sizes.agents}


def connections(url):
    """Return the number of connections accepted by the server."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/connections") as response:
        return int(response.read())


def peak_memory():
    """Return the peak memory of this process in KB; 0 on Windows."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1024 if sys.platform == "darwin" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def long_request(lib, turns):
    """Return a conversation of this number of turns, with results of a kilobyte."""
    messages = [lib.UserMessage("go")]
    for number in range(turns):
        call = lib.ToolCall(f"call_{number}", "page", f'{{"number": {number}}}')
        messages.append(lib.AssistantMessage(f"Page {number}.", (call,)))
        messages.append(lib.ToolMessage(call.id, "page", KILOBYTE))
    return messages


def milliseconds(work, times=20):
    """Return the CPU milliseconds of repeated work, as in all but the first request of a run."""
    work()
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return 1e3 * median(found)


async def wires(side, sizes):
    """Compare the bodies of long requests with ChatOpenAI's and with `json.dumps`."""
    import agentloop as lib
    from agentloop.models.wire import encode_body

    is_floor = isinstance(side, Floor)
    tools = [lib.tool(page)]
    kinds = {
        "chat": lib.ChatOpenAI("m", base_url="http://x"),
        "responses": lib.ChatOpenAI("m", base_url="http://x", api="responses"),
        "anthropic": lib.ChatAnthropic("m", base_url="http://x"),
        "google": lib.ChatGoogle("m", base_url="http://x"),
    }
    found = {}
    messages = long_request(lib, sizes.pages)
    for name in ("anthropic", "google"):
        llm = kinds["chat" if is_floor else name]
        encode = partial(llm.body, messages, tools, "auto", False)
        found[name] = milliseconds(lambda encode=encode: encode_body(encode()))
    messages = long_request(lib, sizes.turns[1])
    for name, llm in kinds.items():
        encode = partial(llm.body, messages, tools, "auto", False)
        body = json.loads(encode_body(encode()))
        by_hand, ours = partial(json.dumps, body), lambda encode=encode: encode_body(encode())
        found[f"long {name}"] = milliseconds(by_hand if is_floor else ours)
    return found


class Instant:
    """A model that replies immediately with one call, and records the times of requests."""

    model = "script"

    def __init__(self, turns, cached):
        import agentloop

        self.lib, self.turns, self.times = agentloop, turns, []
        self.usage = agentloop.Usage(20_000, 20, cached_input_tokens=cached)

    async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
        self.times.append(time.process_time())
        number = len(self.times)
        if number > self.turns:
            return self.lib.AssistantMessage("done")
        call = self.lib.ToolCall(f"call_{number}", "page", f'{{"number": {number}}}')
        return self.lib.AssistantMessage(tool_calls=(call,), usage=self.usage)

    def took(self, turn):
        """Return the milliseconds of the turns before this turn, without those of the provider."""
        first = max(turn - 40, 0)
        return 1e3 * (self.times[turn] - self.times[first]) / (turn - first)


def mixins():
    """Return all classes in agentloop/mixins that are not base classes."""
    import agentloop
    from agentloop import mixins

    found = set()
    for path in Path(mixins.__file__).parent.glob("[a-z]*.py"):
        module = importlib.import_module(f"agentloop.mixins.{path.stem}")
        for cls in vars(module).values():
            if getattr(cls, "__module__", "") == module.__name__ and isinstance(cls, type):
                found |= {cls} if issubclass(cls, agentloop.Loop) else set()
    bases = {base for cls in found for base in cls.__mro__[1:]}
    return sorted(found - bases, key=lambda cls: cls.__name__)


async def turns(side, sizes):
    """Return the milliseconds of a late turn; the floor is an early turn of the same run."""
    import agentloop as lib
    from agentloop.mixins.approval import Approval
    from agentloop.mixins.hooks import Hook, Hooks

    async def nothing(data):
        """Return no opinion on a call."""

    class Gated(Hooks, Approval, lib.Agent):
        approval_mode = "auto"
        hooks = (Hook("PreToolUse", nothing),)

    everything = type("Everything", (*mixins(),), {})

    early, *late = sizes.turns
    stays, goes = lib.tool(page), lib.tool("Read a page", ephemeral=3)(page)
    kinds = {
        "plain": (lib.Agent, stays, CACHED),
        "pruned": (lib.Agent, goes, CACHED),
        "uncached": (lib.Agent, goes, 0),
        "gated": (Gated, stays, CACHED),
        "everything": (everything, goes, CACHED),
        "everything uncached": (everything, goes, 0),
    }
    found = {}
    for name, (kind, tool, read) in kinds.items():
        last = early if isinstance(side, Floor) else late[-1]
        llm = await play(kind, tool, read, last)
        for turn in late:
            found[f"{name} {late.index(turn)}"] = llm.took(min(turn, last))
    return found


async def each_mixin(side, sizes):
    """Return the milliseconds of the last turn with each mixin; the floor is an early turn."""
    import agentloop as lib

    early, *_, latest = sizes.turns
    last = early if isinstance(side, Floor) else latest
    tool = lib.tool("Read a page", ephemeral=3)(page)
    found = {}
    for kind in mixins():
        for name, read in {kind.__name__: CACHED, f"{kind.__name__}, no cache": 0}.items():
            found[name] = (await play(kind, tool, read, last)).took(last)
    return found


async def play(kind, tool, read, last):
    """Run an agent of this class, and return its model. `read` is the cached tokens per request."""
    import agentloop as lib

    llm = Instant(last, read)
    with TemporaryDirectory() as folder:
        known = {
            "compaction": lib.CompactionConfig(context_window=10_000_000),
            "session": "s",
            "session_dir": folder,
            "session_fsync": False,
            "approval_mode": "auto",
        }
        settings = {name: value for name, value in known.items() if hasattr(kind, name)}
        agent = kind(llm=llm, tools=[tool], max_iterations=last + 1, **settings)
        await done(agent.query("go"))
        if hasattr(agent, "close"):
            agent.close()
    return llm


SIDES = {"floor": Floor, "agentloop": Agentloop}
TASKS = {task.__name__: task for task in (crowd, secure, calls, text, growing, wires, turns)}
TASKS_ON_REQUEST = {"each_mixin": each_mixin}


async def main(side_name, url, sizes_json, *tasks):
    side, sizes = SIDES[side_name](url), Sizes(**json.loads(sizes_json))
    measures = {}
    for task in tasks:
        measures |= await (TASKS | TASKS_ON_REQUEST)[task](side, sizes)
    print(json.dumps(measures))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
