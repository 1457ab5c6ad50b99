"""Processes that work on durable runs and append each effect to FOLDER/effects.

`live` starts runs and waits for their ends; a process started after a kill continues the runs.
`serve` works on a queue, as a member of a fleet. `misuse` contains incorrect uses.
"""

import asyncio
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from agentloop import Agent, CompactionConfig, Depends, Loop, ScriptedModel, Session, tool
from agentloop.common.summary import Summary
from agentloop.depends import current_agent
from agentloop.events import FinalResponseEvent, TextDeltaEvent, ToolCallEvent
from agentloop.messages import AssistantMessage, ToolMessage, Usage
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.durable import Durable
from agentloop.mixins.limits import Limits
from agentloop.models.scripted import call
from agentloop.transcript import SideRequest, view

QUEUE = "runs"
folder, kill_at, notes, prompt = Path(), 0, threading.Lock(), "Pay them."


def note(line, name="effects"):
    """Append a line to a file. The process dies at the `kill_at`th new effect."""
    with notes, (folder / name).open("a+") as file:
        file.write(line + "\n")
        file.flush()
        if kill_at and name == "effects":
            file.seek(0)
            *before, newest = file
            if newest not in before and len({*before}) + 1 == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


@tool
async def pay(n: int) -> str:
    """Pay."""
    note(f"{DBOS.workflow_id} pay {n}")
    await asyncio.sleep(0.01 * (3 - n % 3))  # the calls end in a different order
    note(f"{DBOS.workflow_id} paid {n}")
    return f"paid {n}"


@tool(idempotent=True)
def look(n: int, agent: Loop = Depends(current_agent)) -> str:
    """Look."""
    note(f"{DBOS.workflow_id} look {n}")
    agent.add(SideRequest(usage=Usage(1, 1)))  # as a sub-agent in a step does
    return f"saw {n}"


@tool(parallel=False)
async def delegate(n: int) -> str:
    """Let another agent pay, in a separate workflow."""
    return await (await DBOS.start_workflow_async(child, n)).get_result()


async def ask(call, reason):
    """Wait for approval, for at most a day, in any process."""
    note(f"{DBOS.workflow_id} ask leave")
    return await DBOS.recv_async("leave", timeout_seconds=86_400) == "yes"


class Careful(Limits, Session, Agent):
    compaction = CompactionConfig(context_window=300, keep_turns=1)


class Worker(Approval, Careful, Durable):
    workflow_tools = ("delegate",)
    approval_mode = "auto"
    approval_rules = (Rule("ask", "delegate"),)


TURNS = [
    [("pay", 0), ("look", 0), ("pay", 1)],
    [("delegate", 2), ("pay", 3)],
    [("pay", n) for n in range(4, 8)],
]


@DBOS.workflow()
async def child(n: int) -> str:
    def think(messages, tools):  # depends on the messages, because a script would restart
        return call("pay", n=n) if len(messages) == 1 else messages[-1].text

    return await Worker(llm=ScriptedModel(think, think), tools=[pay]).query("Pay.")


@DBOS.workflow()
async def work(max_requests: int | None = None) -> str:
    run = DBOS.workflow_id

    def think(messages, tools):
        turn = sum(isinstance(record, AssistantMessage) for record in agent.log)
        if "Write a summary" in messages[-1].text:
            note(f"{run} ask summary {turn}")
            return "They are being paid."
        note(f"{run} ask {turn}")
        if turn < len(TURNS):
            calls = [call(name, n=n) for name, n in TURNS[turn]]
            return AssistantMessage(f"Turn {turn}. " * 60, calls, usage=Usage(400, 5))
        records = [record for record in agent.log if not isinstance(record, Summary)]
        results = [m.text for m in view(records) if isinstance(m, ToolMessage)]
        return " ".join("?" if "outcome is unknown" in text else text[:8] for text in results)

    def tell(event):
        if not isinstance(event, TextDeltaEvent):
            what = [getattr(event, name, "") for name in ("tool_call_id", "content", "result")]
            note(" ".join([str(run), type(event).__name__, *what]), "events")

    with Worker(
        llm=ScriptedModel(*[think] * 20),
        tools=[pay, look, delegate],
        session=run,
        session_dir=folder,
        session_fsync=False,
        listeners=[tell],
        max_requests=max_requests,
        approval_callback=ask,
        approval_timeout=100_000.0,
    ) as agent:
        return f"{await agent.query(prompt)} ({agent.usage.total_tokens} tokens)"


def launch(where, url, executor):
    global folder
    folder = Path(where)
    config = {"name": "durable-worker", "system_database_url": url, "executor_id": executor}
    DBOS(config=config | {"application_version": "1", "log_level": "CRITICAL"})
    DBOS.launch()


def live(where, url, runs, at):
    """Work on these runs until their ends, or until effect `at` kills this process."""
    global kill_at
    kill_at = at
    launch(where, url, "one")

    async def wait():
        handles = []
        for run in runs:
            with SetWorkflowID(run):
                handles.append(await DBOS.start_workflow_async(work))
            await DBOS.send_async(run, "yes", "leave", idempotency_key=f"leave {run}")
        await asyncio.gather(*[handle.get_result() for handle in handles], return_exceptions=True)

    asyncio.run(wait())
    os._exit(0)  # omits the seconds that DBOS takes to stop its threads


def reordered(*arguments):
    """Run `live` after a change of the order of the mixins."""
    global Worker
    Worker = type("Worker", (Approval, Durable, Careful), {"approval_mode": "auto"})
    live(*arguments)


def reworded(*arguments):
    """Run `live` after a change of the prompt."""
    global prompt
    prompt = "Pay him."
    live(*arguments)


def serve(where, url, executor):
    """Work on the queue until the process is killed."""
    launch(where, url, executor)
    DBOS.register_queue(QUEUE, worker_concurrency=5, polling_interval_sec=0.2)
    (folder / "ready").touch()
    threading.Event().wait()


@DBOS.workflow()
async def endless() -> str:
    async def think(messages, tools):
        note("ask")
        if not (folder / "go on").exists():
            await asyncio.Event().wait()
        return "done"

    return await Worker(llm=ScriptedModel(think, think)).query("Wait.")


@DBOS.workflow()
async def branching() -> str:
    heard = []
    agent = Worker(llm=ScriptedModel("one", "two"), listeners=[heard.append])
    answers = [await agent.query("Begin."), await agent.fork().query("Go on.")]
    finals = [event.content for event in heard if isinstance(event, FinalResponseEvent)]
    return f"answers {answers}, told {finals}"


def branch(where, url, runs, at):
    """Run an agent and a fork of the agent in one workflow, and record their answers."""
    launch(where, url, "one")

    async def main():
        handle = await DBOS.start_workflow_async(branching)
        note(await handle.get_result())

    asyncio.run(main())
    os._exit(0)


@tool(idempotent=True)
async def pay_both(agent: Agent = Depends(current_agent)) -> str:
    """Pay twice."""
    return f"{await agent.call(pay, n=0)}, {await agent.call(pay, n=1)}"


@DBOS.workflow()
async def nesting() -> str:
    def think(messages, tools):
        return call("pay_both") if len(messages) == 1 else messages[-1].text

    return await Worker(llm=ScriptedModel(think, think), tools=[pay, pay_both]).query("Pay.")


def run_one(workflow, where, url, at):
    """Run a workflow as "one", until effect `at` kills this process."""
    global kill_at
    kill_at = at
    launch(where, url, "one")

    async def main():
        with SetWorkflowID("one"):
            handle = await DBOS.start_workflow_async(workflow)
        await handle.get_result()

    asyncio.run(main())
    os._exit(0)


def nest(where, url, runs, at):
    """Run a tool that calls another one."""
    run_one(nesting, where, url, at)


@tool
async def compact(agent: Agent = Depends(current_agent)) -> None:
    """Summarize."""
    await agent.compact()


@DBOS.workflow()
async def compacting() -> str:
    def think(messages, tools):
        note(f"one ask {len(messages)} {messages[-1].text:.4}")
        if "Write a summary" in messages[-1].text:
            return "Paid."
        if any(message.text.endswith("Paid.") for message in messages):
            return "The end."
        asked = call("pay", n=0) if len(messages) == 1 else call("compact")
        return AssistantMessage("I pay. " * 60, [asked])

    tools = [pay, compact]
    settings = {"tools": tools, "compaction": CompactionConfig(keep_turns=0)}
    return await Worker(llm=ScriptedModel(think), **settings).query("Pay.")


def compact_in_run(where, url, runs, at):
    """Run a tool that asks for a summary."""
    run_one(compacting, where, url, at)


@tool
async def fail() -> str:
    """Fail after the other calls."""
    await asyncio.sleep(0.3)
    raise OSError("no")


class Strict(Agent, Durable):
    on_tool_error = "raise"
    max_parallel = 2


@DBOS.workflow()
async def retrying() -> str:
    def think(messages, tools):
        if len(messages) > 1:
            note(f"one saw {len(messages)} messages")
            return "Paid."
        return [call("fail"), *[call("pay", n=n) for n in range(3)]]

    agent = Strict(llm=ScriptedModel(think, think), tools=[fail, pay])
    with suppress(OSError):
        await agent.run("Pay.")
    return (await agent.run()).text


def retry(where, url, runs, at):
    """Continue a run that a call has ended."""
    run_one(retrying, where, url, at)


@DBOS.workflow()
async def streaming() -> str:
    heard = []

    def think(messages, tools):
        note(f"ask {len(messages)}")
        if len(messages) == 1:
            return call("look", n=0)
        return AssistantMessage("All is seen.", [call("done", message="seen")])

    agent = Worker(
        llm=ScriptedModel(think, think),
        tools=[look],
        require_done_tool=True,
        listeners=[heard.append],
    )
    async with agent.query_stream("Look.") as stream:
        read = [event async for event in stream]
    calls = [event.tool for event in read if isinstance(event, ToolCallEvent)]
    told = [event.tool for event in heard if isinstance(event, ToolCallEvent)]
    deltas = "".join(event.content for event in heard if isinstance(event, TextDeltaEvent))
    return f"{stream.result.text}, read {calls}, told {told} {deltas!r}"


def stream(where, url, runs, at):
    """Read the events of a run in a workflow, until effect `at` kills this process."""
    global kill_at
    kill_at = at
    launch(where, url, "one")

    async def main():
        with SetWorkflowID("one"):
            handle = await DBOS.start_workflow_async(streaming)
        await handle.get_result()

    asyncio.run(main())
    os._exit(0)


def misuse(where, url, runs, at):
    """Record the errors of incorrect uses, such as a run outside of a workflow."""
    launch(where, url, "one")

    async def end(handle):
        try:
            note(await (await handle).get_result(), "errors")
        except Exception as error:
            note(f"{type(error).__name__}: {error}", "errors")

    async def main():
        await end(DBOS.start_workflow_async(live))
        with SetWorkflowID("limited"):
            await end(DBOS.start_workflow_async(work, 1))
        with SetWorkflowID("endless"):
            handle = await DBOS.start_workflow_async(endless)
        while "ask" not in (folder / "effects").read_text().splitlines():
            await asyncio.sleep(0.01)
        await DBOS.cancel_workflow_async("endless")
        await end(asyncio.sleep(0, handle))
        (folder / "go on").touch()
        await end(DBOS.resume_workflow_async("endless"))

    asyncio.run(main())
    os._exit(0)
