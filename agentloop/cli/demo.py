"""`agentloop demo`: an agent fixes a failing test in a small project.

The model's replies are scripted; the tool calls, the files and the output are real. The project
directory also contains the session and agent.py, a bundled agent with the same tools.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from .. import Agent, AssistantMessage, Cost, ScriptedModel, Session, call
from ..mixins.approval import Approval
from ..toolkits.files import Workspace
from ..toolkits.shell import Shell
from .bundle import bundle, choose, read_package, write
from .terminal import BOLD, DIM, Terminal

SYSTEM_PROMPT = (
    "You are a coding agent in a terminal. Read the relevant files before you change them, change "
    "no more than the task requires, and run the tests. Report briefly what you did and found."
)
TASK = "A test of this project fails. Find the cause and fix it."
PROJECT = {
    "prices.py": (
        '"""Prices of shopping baskets."""\n\n\ndef total(prices):\n    return sum(prices[1:])\n'
    ),
    "test_prices.py": (
        "import unittest\n\nfrom prices import total\n\n\n"
        "class TestTotal(unittest.TestCase):\n"
        "    def test_every_price_counts(self):\n"
        "        self.assertEqual(total([1, 2, 3]), 6)\n"
    ),
}
COMMAND = f'"{Path(sys.executable).as_posix()}" -B -m unittest -q'  # for bash and for cmd.exe
SCRIPT: Sequence[AssistantMessage] = [
    AssistantMessage("I will run the tests first.", (call("bash", command=COMMAND),)),
    AssistantMessage(
        "The total is 5 instead of 6. I will read the code and its test.",
        (call("read", path="prices.py"), call("read", path="test_prices.py")),
    ),
    AssistantMessage(
        "The slice [1:] skips the first price. I will remove it.",
        (call("edit", path="prices.py", old_text="sum(prices[1:])", new_text="sum(prices)"),),
    ),
    AssistantMessage("I will run the tests again.", (call("bash", command=COMMAND),)),
    AssistantMessage(
        "The test passes now. total() summed prices[1:], which skipped the first price."
    ),
]
AGENT = '''\

import json
import sys


class CodingAgent(Approval, Session, Cost, Agent):
    """The agent of the demo. session="NAME" saves its conversation."""

    system_prompt = """\\
{}"""


def is_allowed(call, reason):
    print(f"Allow the call of {{call.name}}?", json.dumps(call.parsed, indent=2))
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
# The parts of the agent in agent.py
PARTS = ["agent", "approval", "session", "cost", "files", "shell", "openai"]


class CodingAgent(Approval, Session, Cost, Agent):
    """The agent of the demo."""


def main(_: argparse.Namespace) -> int:
    """Run an agent that fixes a failing test; the model is scripted."""
    terminal = Terminal(sys.stdout)
    root = Path(tempfile.mkdtemp(prefix="agentloop-demo-")).resolve()
    for name, text in PROJECT.items():
        write(root / name, text)
    terminal.say(f"The model's replies are scripted; files and tests are real.\n\n> {TASK}", BOLD)
    shell = Shell(root)
    agent = CodingAgent(
        llm=ScriptedModel(*SCRIPT),
        tools=[*Workspace(root).tools, *shell.tools],
        system_prompt=SYSTEM_PROMPT,
        approval_mode="auto",
        session="demo",
        session_dir=root,
        listeners=[terminal.show],
    )
    with agent:
        agent.run_sync(TASK)
    shell.close()
    terminal.say(
        f"\nThe session, for `agentloop view`: {root / 'demo.jsonl'}\n\n"
        "agent.py in the project is an agent with the same prompt and tools, for you to edit.\n"
        "Run it in the project:\n"
        f'  OPENAI_API_KEY=... "{sys.executable}" agent.py "{TASK}"',
        DIM,
    )
    text = bundle(choose(read_package(), PARTS)) + AGENT.format(fill(SYSTEM_PROMPT, 90))
    write(root / "agent.py", text)
    failed = subprocess.run(COMMAND, shell=True, cwd=root, capture_output=True).returncode
    verb = "still fails" if failed else "passes"
    terminal.say(f"The test {verb}. The project: {root}", BOLD)
    return 1 if failed else 0
