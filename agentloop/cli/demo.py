"""`agentloop demo`: an agent mends a small project whose test fails.

The model's words are a script; how they get here and what they do is real. `SCRIPT` and `PROJECT`
are data, `demo` lets an agent work them off, and its figures are of what really happened. The agent
is left there as one file, agent.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from textwrap import wrap

from ..messages import ToolMessage
from ..models.http import HTTPModel
from ..models.replay import dump_to
from .bundle import bundle, joined
from .chat import SYSTEM_PROMPT, Chat
from .loopback import Turn, loopback
from .models import DEFAULT_MODELS, model_at
from .parts import choose, in_order, read_package
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
AGENT = """\

import json
import sys


class CodingAgent(Session, Cost, Agent):
    \"\"\"The agent of the demo. session="NAME" keeps its conversation.\"\"\"

    system_prompt = ({system_prompt}
    )


def is_allowed(tool_name, arguments):
    print(f"May it call {{tool_name}}?", json.dumps(arguments, indent=2))
    return input("[y/N] > ").strip().lower() == "y"


def main():
    here = Path.cwd()
    files, commands = Workspace(here, approve=is_allowed), Shell(here, approve=is_allowed)
    agent = CodingAgent(llm={llm}("{model}"), tools=[*files.tools, *commands.tools])
    answer = agent.run_sync(" ".join(sys.argv[1:]) or input("> ")).text
    print("".join(c for c in answer if c.isprintable() or c == "\\n"))


if __name__ == "__main__":
    main()
"""
PARTS = ["agent", "session", "cost", "files", "shell"]  # what CodingAgent and its tools are made of
PAUSE = 0.02  # seconds from word to word, so that one can watch


def demo(terminal: Terminal, wire: str = "openai", dump: str | None = None) -> int:
    """Plays the demo; returns 0 if the test that failed passes at its end, else 1."""
    key = "none-needed"
    terminal.say(INTRO, BOLD)
    terminal.say(f"\n> {TASK}", BOLD)
    root, bodies = make_project(), list[bytes]()
    with loopback(SCRIPT, bodies=bodies, pause=PAUSE) as base_url:
        llm = model_at(wire, "scripted", base_url, key)
        llm.dump = dump_to(dump) if dump else None
        with Chat(llm, root, terminal, yes=True) as chat:
            start = time.perf_counter()
            chat.answer(TASK)
            seconds = time.perf_counter() - start
    calls = sum(isinstance(record, ToolMessage) for record in chat.agent.log)
    shares = ", ".join(f"{share:.0%}" for share in shared_prefixes(bodies))
    terminal.say(
        f"\n{len(bodies)} requests, {calls} tool calls, {seconds:.1f} s\n"
        f"{chat.usage()} (one for 4 characters)\n"
        f"Of each request, this much began like the one before, so could be cached: {shares}",
        DIM,
    )
    write_agent(root / "agent.py", wire, type(llm))
    terminal.say(
        "\nThe agent that you just ran is agent.py in the project: edit it. Run it there by\n"
        f'  {llm.key_variable}=... python agent.py "{TASK}"'
    )
    return show_outcome(root, terminal)


def make_project() -> Path:
    """The project, in a new temporary folder."""
    root = Path(tempfile.mkdtemp(prefix="agentloop-demo-")).resolve()
    for name, text in PROJECT.items():
        (root / name).write_text(text, encoding="utf-8")
    return root


def write_agent(path: Path, wire: str, llm: type[HTTPModel]) -> None:
    """The agent of the demo as a bundle, with a model of that provider."""
    chosen = [*PARTS, wire]
    package = read_package()
    parts = in_order(package, choose(package, chosen))
    command = f"agentloop bundle {' '.join(chosen)} -o {path.name}"
    lines = wrap(SYSTEM_PROMPT, 84, drop_whitespace=False)
    prompt = "".join(f"\n        {json.dumps(line)}" for line in lines)
    main = AGENT.format(system_prompt=prompt, llm=llm.__name__, model=DEFAULT_MODELS[wire])
    text = joined(bundle(parts, command)) + main
    path.write_text(text, encoding="utf-8", newline="\n")


def show_outcome(root: Path, terminal: Terminal) -> int:
    """Runs the project's tests; returns 0 if they pass, else 1."""
    failed = subprocess.run(RUN_TESTS, cwd=root, capture_output=True, timeout=60).returncode
    verb, style = ("still fails", RED) if failed else ("passes", GREEN)
    terminal.say(f"The test {verb}. The project: {root}", style)
    return 1 if failed else 0


def shared_prefixes(bodies: Sequence[bytes]) -> list[float]:
    """For each request, the share of its bytes with which the one before began too.

    Providers cache such a beginning. They put the tools before the messages, and so does this;
    where Anthropic is asked to cache is no part of what it reads.
    """
    shares: list[float] = []
    before = ""
    for content in bodies:
        body = json.loads(content, object_hook=_without_marks)
        first = [body.get(name) for name in ("tools", "system", "systemInstruction")]
        prompt = json.dumps([*first, *(body.get("messages") or body["contents"])])[:-1]
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before, prompt, strict=False))
        shares.append(sum(1 for _ in same) / len(prompt))
        before = prompt
    return shares


def _without_marks(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name != "cache_control"}
