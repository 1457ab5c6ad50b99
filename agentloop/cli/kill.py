"""`agentloop demo --kill`: an agent is killed in the middle of a tool, and goes on.

It runs in a process of its own, which is this file, and keeps its conversation in a session. Once
it has paid a bill, and before the tool for that returns, the process is killed. Then an agent in
the present process goes on from the session's file.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Timer

from ..tools import tool
from ..transcript import open_calls
from . import demo
from .chat import Chat
from .loopback import Turn, loopback
from .models import model_at
from .terminal import BOLD, DIM, RED, Terminal

INTRO = (
    "In this demo the model's words are a script, played by a server on loopback. HTTP, tools, "
    "files, test runs, the kill of the agent's process and what a new one reads back are real."
)
TASK = "Pay the bill of 6, once. Then mend this project: a test of it fails."
FOLLOW_UP = "Was anything paid twice?"
LEDGER = "ledger.txt"
SCRIPT: Sequence[Turn] = [
    ["I pay the bill first.", ("pay", {"amount": 6})],
    [
        "Whether that paid is unknown, so I look at the ledger before I pay again.",
        ("read", {"path": LEDGER}),
        ("read", {"path": "prices.py"}),
    ],
    *demo.SCRIPT[2:4],
    "The bill was paid, so I did not pay it again. And the test passes now.",
    "No. The ledger has one line.",
]
PAID = "paid"
SECONDS = 60  # longer than anything here takes


def kill_demo(terminal: Terminal, wire: str = "openai") -> int:
    """Plays the demo; returns 0 if the tool ran once, nothing is open and the test passes."""
    terminal.say(INTRO, BOLD)
    terminal.say(f"\n> {TASK}", BOLD)
    root = demo.make_project()
    with loopback(SCRIPT, pause=demo.PAUSE) as base_url:
        status = kill_in_the_middle(str(root), base_url, wire)
        terminal.say(f"\nKilled while the tool waited: exit status {status}. A new agent:\n", RED)
        with agent_at(root, base_url, wire, terminal) as chat:
            agent = chat.agent
            found, cut_off = len(agent.log), len(open_calls(agent.log))
            terminal.say(f"{found} records read back, {cut_off} call without an answer in them.")
            terminal.line(f"  pay: {agent.messages[-1].text}", DIM)
            finished = chat.answer(None)
            unanswered = len(open_calls(agent.log))
            terminal.say(f"\n> {FOLLOW_UP}", BOLD)
            accepted = chat.answer(FOLLOW_UP)
    paid = (root / LEDGER).read_text(encoding="utf-8").count(PAID)
    terminal.say(
        f"\nTimes that the tool ran, by its ledger: {paid}. Calls without an answer: {unanswered}. "
        f"Follow-up request: {'accepted' if accepted else 'refused'}.\n"
        f"The session: {root / 's.jsonl'}",
        DIM,
    )
    good = finished and accepted and (cut_off, paid, unanswered) == (1, 1, 0)
    return demo.show_outcome(root, terminal) or (0 if good else 1)


def kill_in_the_middle(*arguments: str) -> int:
    """Lets an agent begin, kills it once it has paid, and returns its exit status."""
    command = [sys.executable, "-m", __name__, *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        timer = Timer(SECONDS, process.kill)
        timer.start()
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            if said.strip() != PAID.encode():
                said += process.stderr.read()
                raise RuntimeError(f"the agent ended too early: {said.decode(errors='replace')}")
        finally:
            timer.cancel()
            process.kill()
    return process.returncode


def agent_at(root: Path, base_url: str, wire: str, terminal: Terminal) -> Chat:
    """The agent, in both processes: with a tool that pays, and a session in the folder."""

    @tool("Pays an amount, and notes it in ledger.txt. Each call pays again.")
    async def pay(amount: int) -> str:
        with (root / LEDGER).open("a", encoding="utf-8") as ledger:
            ledger.write(f"{PAID} {amount}\n")
        print(PAID, file=sys.stderr, flush=True)
        await asyncio.sleep(SECONDS)  # the bank is slow
        return "Confirmed."

    llm = model_at(wire, "scripted", base_url, "none-needed")
    return Chat(llm, root, terminal, yes=True, tools=[pay], session="s", session_dir=root)


if __name__ == "__main__":
    folder, url, wire = sys.argv[1:]
    with agent_at(Path(folder), url, wire, Terminal(sys.stdout)) as chat:
        chat.answer(TASK)
