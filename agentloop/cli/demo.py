"""`agentloop demo`: an agent is killed during a call, and continues.

The program is the real chat in a process of its own; only the replies of the model are scripted.
When the agent publishes a release, the demo kills its process as `kill -9` does, and starts it
again. The second process continues the session without publishing twice.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import AssistantMessage, Message, ScriptedModel, Tool, ToolMessage, call
from .bundle import write
from .main import CHAT, load
from .terminal import BOLD, RED, Terminal
from .view import logs_of, page_of, write_page

TASK = "A test of this project fails. Fix it, then publish the release."
PROJECT = {
    "prices.py": "def total(prices):\n    return sum(prices[1:])\n",
    "test_prices.py": (
        "import unittest\n\nfrom prices import total\n\n\n"
        "class TestTotal(unittest.TestCase):\n"
        "    def test_every_price_counts(self):\n"
        "        self.assertEqual(total([1, 2, 3]), 6)\n"
    ),
    "publish.py": (
        "import time\n\n"
        'with open("published.txt", "a") as file:\n'
        '    print("release 1.0.1", file=file)  # the customers can see it now\n'
        "time.sleep(4)  # the server is slow to confirm\n"
        'print("published")\n'
    ),
}
PYTHON = f'"{Path(sys.executable).as_posix()}" -B'  # for bash and for cmd.exe
SCRIPT: Sequence[AssistantMessage] = [
    AssistantMessage(
        "I'll run the tests first.", (call("bash", command=f"{PYTHON} -m unittest -q"),)
    ),
    AssistantMessage(
        "The total is 5 instead of 6. I'll read the code.", (call("read", path="prices.py"),)
    ),
    AssistantMessage(
        "The slice [1:] skips the first price.",
        (call("edit", path="prices.py", old_text="sum(prices[1:])", new_text="sum(prices)"),),
    ),
    AssistantMessage("And again.", (call("bash", command=f"{PYTHON} -m unittest -q"),)),
    AssistantMessage("The test passes.", (call("bash", command=f"{PYTHON} publish.py"),)),
    AssistantMessage(
        "I was interrupted while I published. I'll look before I do it again.",
        (call("read", path="published.txt"),),
    ),
    AssistantMessage("The test is fixed, and release 1.0.1 was published once."),
]
MAX_SECONDS = 60.0  # until the agent publishes


HELP = "See an agent that is killed during a call, and continues. Offline."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The demo has no options."""


def main(_: argparse.Namespace) -> int:
    load(CHAT)  # raises ImportError if the chat isn't installed
    terminal = Terminal(sys.stdout)
    root = Path(tempfile.mkdtemp(prefix="agentloop-demo-")).resolve()
    for name, text in PROJECT.items():
        write(root / name, text)
    published = root / "published.txt"

    terminal.say(f"The model is scripted. Everything else is real, in {root}\n\n> {TASK}", BOLD)
    first = agent_process(root)
    end = time.monotonic() + MAX_SECONDS
    while not published.exists() and first.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)  # for the reader
    first.kill()
    first.wait()
    terminal.say(f"\nKilled process {first.pid} while it was publishing. Starting it again:\n", RED)
    status = agent_process(root).wait()

    session = root / "demo.jsonl"
    page = root / "demo.html"
    logs = logs_of(session)
    write_page(page, page_of(session.name, *logs))
    for record in logs[-1]:
        if isinstance(record, ToolMessage) and record.origin == "sealed":
            terminal.say(f"\nAbout the killed call, the model was told: {record.text}")
    releases = len(published.read_text("utf-8").splitlines())
    terminal.say(
        f"\npublished.txt lists {releases} release. What happened, as a page: {page}", BOLD
    )
    if sys.stdout.isatty():
        webbrowser.open(page.as_uri())
    return 0 if (status, releases) == (0, 1) else 1


def agent_process(root: Path) -> subprocess.Popen[bytes]:
    """Start the agent of the demo in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "agentloop.cli.demo", str(root)])


def scripted(messages: Sequence[Message], tools: Sequence[Tool]) -> AssistantMessage:
    """The model. How many replies there are already says which one comes next."""
    return SCRIPT[sum(isinstance(message, AssistantMessage) for message in messages)]


def work(root: Path) -> None:
    """Start the task in the folder, or continue the session that is there."""
    chat: Any = import_module("agentloop_chat.conversation")
    chat.CodingAgent.session_dir = root
    is_new = not (root / "demo.jsonl").exists()
    place = {"root": root, "terminal": Terminal(sys.stdout), "session": "demo"}
    setup = chat.Setup(llm=ScriptedModel(scripted), yes=True, **place)
    with chat.Chat(setup) as conversation:
        conversation.runner.run(conversation.reply(TASK if is_new else None))


if __name__ == "__main__":
    work(Path(sys.argv[1]))
