"""`agentloop demo`: an agent mends a small project whose test fails; with --kill it is killed.

The model's words are a script. What they do is real, and all figures are of what happened. The
first demo leaves its agent there as one file, agent.py. In the second the agent runs in a process
of its own, which is this file, and SIGKILL ends that once a bill is paid, before the tool for it
returns. Then an agent in the present process goes on from the session's file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from .. import AssistantMessage, ScriptedModel, ToolMessage, call, tool
from .agent import SYSTEM_PROMPT, Chat
from .bundle import bundle, choose, joined, read_package
from .terminal import BOLD, DIM, RED, Terminal

INTRO = "In this demo the model's words are a script. Tools, files, test runs{} are real."
TASK = "A test of this project fails. Find out why, and mend it."
PROJECT = {
    "prices.py": (
        '"""What a shopping basket costs."""\n\n\ndef total(prices):\n    return sum(prices[1:])\n'
    ),
    "test_prices.py": (
        "import unittest\n\nfrom prices import total\n\n\n"
        "class TestTotal(unittest.TestCase):\n"
        "    def test_every_price_counts(self):\n"
        "        self.assertEqual(total([1, 2, 3]), 6)\n"
    ),
}
RUN_TESTS = [sys.executable, "-B", "-m", "unittest", "-q"]
COMMAND = f'"{Path(sys.executable).as_posix()}" -B -m unittest -q'  # for bash and for cmd.exe
FIX = AssistantMessage(
    "The slice [1:] leaves out the first price. I take it away.",
    (call("edit", path="prices.py", old_text="sum(prices[1:])", new_text="sum(prices)"),),
)
TEST_AGAIN = AssistantMessage("Now the tests once more.", (call("bash", command=COMMAND),))
SCRIPT: Sequence[AssistantMessage] = [
    AssistantMessage("I run the tests first.", (call("bash", command=COMMAND),)),
    AssistantMessage(
        "The total is 5 where it should be 6. I look at the code and at its test.",
        (call("read", path="prices.py"), call("read", path="test_prices.py")),
    ),
    FIX,
    TEST_AGAIN,
    AssistantMessage(
        "The test passes now. total() summed prices[1:], which left out the first price."
    ),
]
KILL_TASK = "Pay the bill of 6, once. Then mend this project: a test of it fails."
FOLLOW_UP = "Was anything paid twice?"
LEDGER, PAID = "ledger.txt", "paid"
PAYS = AssistantMessage("I pay the bill first.", (call("pay", amount=6),))
AFTER_KILL: Sequence[AssistantMessage] = [
    AssistantMessage(
        "Whether that paid is unknown, so I look at the ledger before I pay again.",
        (call("read", path=LEDGER), call("read", path="prices.py")),
    ),
    FIX,
    TEST_AGAIN,
    AssistantMessage("The bill was paid, so I did not pay it again. And the test passes now."),
    AssistantMessage("No. The ledger has one line."),
]
AGENT = '''\

import json
import sys


class CodingAgent(Approval, Session, Cost, Agent):
    """The agent of the demo. session="NAME" keeps its conversation."""

    system_prompt = """\\
{}"""


def is_allowed(call, reason):
    print(f"May it call {{call.name}}?", json.dumps(call.parsed, indent=2))
    return input("[y/N] > ").strip().lower() == "y"


def main():
    here = Path.cwd()
    tools = [*Workspace(here).tools, *Shell(here).tools]
    llm = ChatOpenAI("gpt-5-mini")
    agent = CodingAgent(llm=llm, tools=tools, approval_callback=is_allowed)
    answer = agent.run_sync(" ".join(sys.argv[1:]) or input("> ")).text
    print("".join(c for c in answer if c.isprintable() or c == "\\n"))


if __name__ == "__main__":
    main()
'''
PARTS = [
    "agent",
    "approval",
    "session",
    "cost",
    "files",
    "shell",
    "openai",
]  # what CodingAgent is made of
SECONDS = 60  # longer than anything here takes
SIGKILL = 9  # Windows has no such signal, and ends a process at once for any number


def main(options: argparse.Namespace) -> int:
    """Let an agent mend a project; its model is a script.

    --kill  kill it as it pays a pretend bill; that is paid once
    """
    terminal = Terminal(sys.stdout)
    root = Path(tempfile.mkdtemp(prefix="agentloop-demo-")).resolve()
    for name, text in PROJECT.items():
        (root / name).write_text(text, encoding="utf-8")
    good = kill_demo(terminal, root) if options.kill else demo(terminal, root)
    failed = subprocess.run(RUN_TESTS, cwd=root, capture_output=True, timeout=SECONDS).returncode
    verb = "still fails" if failed else "passes"
    terminal.say(f"The test {verb}. The project: {root}", BOLD)
    return 1 if failed or not good else 0


def demo(terminal: Terminal, root: Path) -> bool:
    """Let an agent mend the project, and leave it there. Return True if it answered."""
    terminal.say(f"{INTRO.format('')}\n\n> {TASK}", BOLD)
    with Chat(ScriptedModel(*SCRIPT), root, terminal, yes=True) as chat:
        result = chat.answer(TASK)
    kinds = [type(record) for record in chat.agent.log]
    requests, calls = kinds.count(AssistantMessage), kinds.count(ToolMessage)
    terminal.say(
        f"\n{requests} requests, {calls} tool calls\n\n"
        "The agent that you just ran is agent.py in the project: edit it. Run it there by\n"
        f'  OPENAI_API_KEY=... python agent.py "{TASK}"',
        DIM,
    )
    text = joined(bundle(choose(read_package(), PARTS))) + AGENT.format(fill(SYSTEM_PROMPT, 90))
    (root / "agent.py").write_text(text, encoding="utf-8", newline="\n")
    return result is not None


def kill_demo(terminal: Terminal, root: Path) -> bool:
    """Let an agent be killed, and go on. Return True if its tool ran once and no call is open."""
    terminal.say(f"{INTRO.format(', and the kill of its process')}\n\n> {KILL_TASK}", BOLD)
    command = [sys.executable, "-m", __name__, str(root)]
    status = subprocess.run(command, timeout=SECONDS).returncode
    terminal.say(f"\nKilled as the tool had paid: exit status {status}. A new agent:\n", RED)
    with paying_agent(ScriptedModel(*AFTER_KILL), root, terminal) as chat:
        log = chat.agent.log
        cut_off = len(chat.agent.conversation.open_calls)
        terminal.say(f"{len(log)} records read back, {cut_off} call without an answer in them.")
        terminal.line(f"  pay: {chat.agent.messages[-1].text}", DIM)
        finished = chat.answer(None)
        unanswered = len(chat.agent.conversation.open_calls)
        terminal.say(f"\n> {FOLLOW_UP}", BOLD)
        accepted = chat.answer(FOLLOW_UP)
    paid = (root / LEDGER).read_text(encoding="utf-8").count(PAID)
    verdict = "accepted" if accepted else "refused"
    terminal.say(
        f"\nTimes that the tool ran, by its ledger: {paid}. Calls without an answer: {unanswered}. "
        f"Follow-up request: {verdict}.\n"
        f"The session: {root / 's.jsonl'}",
        DIM,
    )
    return bool(finished and accepted) and (cut_off, paid, unanswered) == (1, 1, 0)


def paying_agent(llm: ScriptedModel, root: Path, terminal: Terminal) -> Chat:
    """Build the agent of both processes: it has a tool that pays, and a session in the folder."""

    @tool("Pays an amount, and notes it in ledger.txt. Each call pays again.")
    async def pay(amount: int) -> None:
        with (root / LEDGER).open("a", encoding="utf-8") as ledger:
            ledger.write(f"{PAID} {amount}\n")
        os.kill(os.getpid(), SIGKILL)  # the process ends here, before the tool returns

    return Chat(llm, root, terminal, yes=True, tools=[pay], session="s", session_dir=root)


if __name__ == "__main__":
    with paying_agent(ScriptedModel(PAYS), Path(sys.argv[1]), Terminal(sys.stdout)) as chat:
        chat.answer(KILL_TASK)
