"""`agentloop demo`: an agent mends a small project whose test fails.

The model's words are a script. What they do is real, and so is what is printed. The demo leaves in
the project its session, and an agent of the same tools as one file, agent.py.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from .. import AssistantMessage, ScriptedModel, call
from .agent import SYSTEM_PROMPT, Chat
from .bundle import bundle, choose, read_package, write
from .terminal import BOLD, DIM, Terminal

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
SCRIPT: Sequence[AssistantMessage] = [
    AssistantMessage("I run the tests first.", (call("bash", command=COMMAND),)),
    AssistantMessage(
        "The total is 5 where it should be 6. I look at the code and at its test.",
        (call("read", path="prices.py"), call("read", path="test_prices.py")),
    ),
    AssistantMessage(
        "The slice [1:] leaves out the first price. I take it away.",
        (call("edit", path="prices.py", old_text="sum(prices[1:])", new_text="sum(prices)"),),
    ),
    AssistantMessage("Now the tests once more.", (call("bash", command=COMMAND),)),
    AssistantMessage(
        "The test passes now. total() summed prices[1:], which left out the first price."
    ),
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
# What the agent in agent.py is made of
PARTS = ["agent", "approval", "session", "cost", "files", "shell", "openai"]


def main(_: argparse.Namespace) -> int:
    """Let an agent mend a project; its model is a script."""
    terminal = Terminal(sys.stdout)
    root = Path(tempfile.mkdtemp(prefix="agentloop-demo-")).resolve()
    for name, text in PROJECT.items():
        write(root / name, text)
    terminal.say(
        f"Here the model's words are a script; files and tests are real.\n\n> {TASK}", BOLD
    )
    llm = ScriptedModel(*SCRIPT)
    with Chat(llm, root, terminal, yes=True, session="demo", session_dir=root) as chat:
        chat.runner.run(chat.reply(TASK))
    terminal.say(
        f"\nThe session, for `agentloop view`: {root / 'demo.jsonl'}\n\n"
        "agent.py in the project is an agent with the same prompt and tools: edit it.\n"
        "Run it there:\n"
        f'  OPENAI_API_KEY=... "{sys.executable}" agent.py "{TASK}"',
        DIM,
    )
    text = bundle(choose(read_package(), PARTS)) + AGENT.format(fill(SYSTEM_PROMPT, 90))
    write(root / "agent.py", text)
    failed = subprocess.run(RUN_TESTS, cwd=root, capture_output=True).returncode
    verb = "still fails" if failed else "passes"
    terminal.say(f"The test {verb}. The project: {root}", BOLD)
    return 1 if failed else 0
