"""A session as a test: its calls run again in a copy of the files, and the results are compared.

Use it for the tools of a coding agent: a session that went well becomes a test, which fails if a
tool returns something else. The test asks no model. In the folder of the session, the command

    python session_as_test.py ~/.agentloop/sessions/NAME.jsonl as_test

writes a folder to commit, with the session, the files, this module and a test. Files that the
session has read get the content that they had at its beginning. `python -m pytest as_test` runs the
test. Before you commit, look for secrets: the folder has the complete session.
"""

import asyncio
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from difflib import unified_diff
from pathlib import Path

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Record,
    ScriptedModel,
    Session,
    ToolMessage,
    UserMessage,
    call,
    read_log,
)
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.shell import Shell
from agentloop.transcript import Conversation, Reset

TIMES = r"in \d+\.\d+ ?s"  # durations, which vary between runs
FOLDER = b"@THE-FOLDER-OF-THE-SESSION@"  # replaces the folder's path in the session of a test
NOT_COPIED = (".git", ".venv", "venv", "node_modules", "__pycache__", ".*_cache")
TEST = '''\
"""Repeat the calls of the session {0}. A changed result fails the test."""

import asyncio
from pathlib import Path

from session_as_test import make_agent, run_again  # or define your own make_agent

HERE = Path(__file__).parent


def test_{0}(tmp_path):
    # ignore=r"...": a pattern for text that differs between runs
    asyncio.run(run_again(make_agent, HERE / "{0}.jsonl", HERE / "files", tmp_path))
'''


class ReplayMismatch(AssertionError):
    """The result of a call differs from the session."""


def make_agent(llm: ScriptedModel, folder: Path) -> Loop:
    """Create an agent with the tools of the chat."""
    return Agent(llm=llm, tools=[*Workspace(folder).tools, *Shell(folder).tools])


def write_test(target: Path, session: Path, root: Path) -> None:
    """Create a folder with a session, copies of the files in `root`, and a test of the session."""
    name = re.sub(r"\W", "_", session.stem)
    target.mkdir(parents=True)
    ignored = shutil.ignore_patterns(*NOT_COPIED, target.name)
    files = shutil.copytree(root, target / "files", symlinks=True, ignore=ignored)
    restore(files.resolve(), read_log(session))
    copy = target / f"{name}.jsonl"
    copy.touch(0o600)
    copy.write_bytes(session.read_bytes().replace(as_json(root), FOLDER))
    (target / f"test_{name}.py").write_text(TEST.format(name), encoding="utf-8")
    (target / "conftest.py").write_text('collect_ignore = ["files"]\n', encoding="utf-8")
    shutil.copy(__file__, target / "session_as_test.py")


def as_json(path: Path) -> bytes:
    """A path as it's written inside a JSON string."""
    return json.dumps(str(path))[1:-1].encode()


def restore(files: Path, log: Sequence[Record]) -> None:
    """Give files that the session has read the content that they had at its beginning."""
    states = Conversation(log).catch_up().states
    for state in reversed(states.values()):  # so that the oldest call for a file wins
        arguments = state.call.parsed or {}
        path = (files / str(arguments.get("path"))).resolve()
        if state.result is None or state.status != "completed" or not path.is_relative_to(files):
            continue
        text = state.result.text
        if text.startswith("Created"):
            path.unlink(missing_ok=True)
        elif text.startswith("     1\t") and "\n[More lines follow" not in text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(re.sub(r"(?m)^ *\d+\t", "", text) + "\n", encoding="utf-8")


async def run_again(
    make_agent: Callable[[ScriptedModel, Path], Loop],
    session: Path,
    files: Path,
    tmp_path: Path,
    ignore: str = TIMES,
) -> int:
    """Run the calls of a session again in a copy of its files. Returns how many there were.

    Calls that never started, were denied, or have no result are left out. `ignore` is a regular
    expression for text that may differ. Raises ReplayMismatch if a result differs.
    """
    folder = shutil.copytree(files, tmp_path / "files", symlinks=True)
    copy = tmp_path / session.name
    copy.write_bytes(session.read_bytes().replace(FOLDER, as_json(folder)))
    log = read_log(copy)
    agent = make_agent(ScriptedModel(lambda messages, tools: "Done."), folder)
    states = Conversation(log).catch_up().states.values()
    ran = [
        (state.call, state.result)
        for state in states
        if state.start and state.result and state.status in ("completed", "failed")
    ]
    ran = [each for each in ran if not each[0].parent_id]  # tools make their own calls again
    for made, before in ran:
        # run() without a prompt executes the open calls of the log
        agent.record(Reset())
        agent.record(UserMessage("Go on."))
        agent.record(AssistantMessage(tool_calls=(made,)))
        await agent.run()
        [result] = (record for record in agent.log if isinstance(record, ToolMessage))
        recorded, now = lines_of(before, ignore), lines_of(result, ignore)
        if recorded != now:
            problem = f"{made.name} returned another result than in {session.name}"
            diff = unified_diff(recorded, now, "recorded", "now", lineterm="", n=2)
            raise ReplayMismatch("\n".join([problem, *diff]))
    return len(ran)


def lines_of(result: ToolMessage, ignore: str) -> list[str]:
    """The lines of a result that are compared, without the text that matches `ignore`."""
    text = re.sub(ignore, "…", result.text)
    if result.is_error:
        text = f"error: {text}"
    return text.split("\n")


class Recorded(Session, Agent):
    """An agent with a recorded session."""


def main(place: Path) -> None:
    """Create a session and its test; run the test before and after a file has changed."""
    root = place / "project"
    root.mkdir()
    (root / "notes.txt").write_text("milk\n")
    calls = call("read", path="notes.txt"), call("write", path="notes.txt", content="milk\nbread\n")
    llm = ScriptedModel(*calls, "There is bread on the list now.")
    with Recorded(llm=llm, tools=Workspace(root).tools, session="s", session_dir=place) as agent:
        print(agent.run_sync("Add bread to my list."))
    write_test(test := place / "as_test", place / "s.jsonl", root)
    for text, copy in ("milk\n", "first"), ("beer\n", "second"):
        (test / "files" / "notes.txt").write_text(text)
        (tmp := place / copy).mkdir()
        try:
            count = asyncio.run(run_again(make_agent, test / "s.jsonl", test / "files", tmp))
            print(count, "calls returned the same results.")
        except ReplayMismatch as mismatch:
            print(mismatch)


if __name__ == "__main__":
    if sys.argv[1:]:
        write_test(Path(sys.argv[2]), Path(sys.argv[1]), Path.cwd())
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
