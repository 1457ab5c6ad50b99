"""`python -m agentloop demo`: an agent mends a small project whose test fails.

The model's words are a script; how they get here and what they do is real. `SCRIPT` and `PROJECT`
are data, `play` lets an agent work them off, and `Figures` are taken from what really happened.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..messages import ToolMessage, Usage
from .chat import Chat
from .loopback import Turn, loopback
from .main import model_at
from .terminal import BOLD, DIM, GREEN, RED, Terminal

INTRO = (
    "In this demo the model's words are a script, played by a server on loopback. "
    "HTTP, streams, tools, files and test runs are real."
)
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
SCRIPT: Sequence[Turn] = [
    ["I run the tests first.", ("bash", {"command": COMMAND})],
    [
        "The total is 5 where it should be 6. I look at the code and at its test.",
        ("read", {"path": "prices.py"}),
        ("read", {"path": "test_prices.py"}),
    ],
    [
        "The slice [1:] leaves out the first price. I take it away.",
        ("edit", {"path": "prices.py", "old_text": "sum(prices[1:])", "new_text": "sum(prices)"}),
    ],
    ["Now the tests once more.", ("bash", {"command": COMMAND})],
    "The test passes now. total() summed prices[1:], which left out the first price.",
]
PAUSE = 0.02  # seconds from word to word, so that one can watch


class Figures(NamedTuple):
    """What a demo took. `shared` says for each request how much of it a provider knew before."""

    requests: int
    calls: int
    usage: Usage
    seconds: float
    shared: list[float]


def demo(terminal: Terminal) -> int:
    """Plays the demo; returns 0 if the test that failed passes at its end, else 1."""
    terminal.say(INTRO, BOLD)
    root = make_project()
    if tests_pass(root):
        terminal.say("The test passes before anything was done: something is wrong here.", RED)
        return 1
    terminal.say(f"\n> {TASK}", BOLD)
    figures = play(root, terminal)
    for line in describe(figures):
        terminal.say(line, DIM)
    if not tests_pass(root):
        terminal.say(f"The test still fails. The project: {root}", RED)
        return 1
    terminal.say(f"The test passes. The project: {root}", GREEN)
    return 0


def make_project() -> Path:
    """The project, in a new temporary folder."""
    root = Path(tempfile.mkdtemp(prefix="agentloop-demo-")).resolve()
    for name, text in PROJECT.items():
        (root / name).write_text(text, encoding="utf-8")
    return root


def tests_pass(root: Path) -> bool:
    """Whether the project's tests pass, by running them."""
    return subprocess.run(RUN_TESTS, cwd=root, capture_output=True, timeout=60).returncode == 0


def play(root: Path, terminal: Terminal, *, pause: float = PAUSE) -> Figures:
    """Lets the agent work on the project. Nothing is asked: the folder is there for this only."""
    bodies: list[bytes] = []
    with loopback(SCRIPT, bodies=bodies, pause=pause) as base_url:
        llm = model_at("scripted", base_url, key="none-needed")
        with Chat(llm, root, terminal, yes=True) as chat:
            start = time.perf_counter()
            chat.answer(TASK)
            seconds = time.perf_counter() - start
    calls = sum(isinstance(record, ToolMessage) for record in chat.agent.log)
    return Figures(len(bodies), calls, chat.agent.usage, seconds, shared_prefixes(bodies))


def shared_prefixes(bodies: Sequence[bytes]) -> list[float]:
    """For each request, the share of its bytes with which the one before began too.

    Providers cache such a beginning. They put the tools before the messages, and so does this.
    """
    shares: list[float] = []
    before = b""
    for content in bodies:
        body = json.loads(content)
        prompt = json.dumps([body.get("tools"), *body["messages"]]).encode()[:-1]
        pairs = enumerate(zip(before, prompt, strict=False))
        same = next((at for at, (old, new) in pairs if old != new), min(len(before), len(prompt)))
        shares.append(same / len(prompt))
        before = prompt
    return shares


def describe(figures: Figures) -> list[str]:
    """The figures in words."""
    usage = figures.usage
    shares = ", ".join(f"{share:.0%}" for share in figures.shared)
    return [
        "",
        f"{figures.requests} requests, {figures.calls} tool calls, {figures.seconds:.1f} s",
        f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out (one for 4 characters)",
        f"Of each request, this much began like the one before, so could be cached: {shares}",
    ]
