"""A session as a test: its calls run again in a copy of its files, and must give the same results.

One wants it for the tools of a coding agent: a session that went well is kept as it is, and fails
when a tool answers otherwise one day. No model is asked. In the folder where the session was made:

    python session_as_test.py ~/.agentloop/sessions/NAME.jsonl as_test

writes a folder to commit: the session, the folder's files as they were when the session began (as
far as it has read them), this file, and a test. `python -m pytest as_test` runs it. It holds all of
the session: mind that.
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
    ScriptedModel,
    Session,
    ToolMessage,
    UserMessage,
)
from agentloop.common.store import load_log, read_lines, read_log
from agentloop.messages import Record
from agentloop.models.scripted import call
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.shell import Shell
from agentloop.transcript import Conversation

TIMES = r"in \d+\.\d+ ?s"  # durations, which differ from run to run
FOLDER = b"@THE-FOLDER-OF-THE-SESSION@"  # replaces the folder's path in the session of a test
NOT_COPIED = (".git", ".venv", "venv", "node_modules", "__pycache__", ".*_cache")
TEST = '''\
"""Run the calls of the session {0} again. A changed result fails."""

import asyncio
from pathlib import Path

from session_as_test import make_agent, run_again  # or write a make_agent of your own

HERE = Path(__file__).parent


def test_{0}(tmp_path):
    # ignore=r"..." names what differs from run to run
    asyncio.run(run_again(make_agent, HERE / "{0}.jsonl", HERE / "files", tmp_path))
'''


class ReplayMismatch(AssertionError):
    """A call has another result than in the session."""


def make_agent(llm: ScriptedModel, folder: Path) -> Loop:
    """Return an agent with the tools of the chat."""
    return Agent(llm=llm, tools=[*Workspace(folder).tools, *Shell(folder).tools])


def write_test(target: Path, session: Path, root: Path) -> None:
    """Write a test of a session, the session, and the files of a folder into a new folder."""
    name = re.sub(r"\W", "_", session.stem)
    target.mkdir(parents=True)
    ignored = shutil.ignore_patterns(*NOT_COPIED, target.name)
    files = shutil.copytree(root, target / "files", symlinks=True, ignore=ignored)
    restore(files.resolve(), read_log(session))
    kept = target / f"{name}.jsonl"
    kept.touch(0o600)
    kept.write_bytes(session.read_bytes().replace(as_json(root), FOLDER))
    (target / f"test_{name}.py").write_text(TEST.format(name), encoding="utf-8")
    (target / "conftest.py").write_text('collect_ignore = ["files"]\n', encoding="utf-8")
    shutil.copy(__file__, target / "session_as_test.py")


def as_json(path: Path) -> bytes:
    """Return the path as it stands in a JSON text."""
    return json.dumps(str(path))[1:-1].encode()


def restore(files: Path, log: Sequence[Record]) -> None:
    """Give files the text that they had when the session began, as far as it has read them."""
    states = Conversation(log).catch_up().states
    for state in reversed(states.values()):  # the oldest call that tells of a file wins
        arguments = state.call.parsed or {}
        path = (files / str(arguments.get("path"))).resolve()
        if state.result is None or state.state != "completed" or not path.is_relative_to(files):
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
    """Run the calls of a session again, in a copy of its files. Return how many.

    Calls that did not start, were denied, or have no result are left out. Raises ReplayMismatch
    if a call has another result. `ignore` is a pattern of what may differ.
    """
    folder = shutil.copytree(files, tmp_path / "files", symlinks=True)
    lines = read_lines(session)
    log = load_log(line.replace(FOLDER, as_json(folder)) for line in lines)
    agent = make_agent(ScriptedModel(lambda messages, tools: "Done."), folder)
    states = Conversation(log).catch_up().states.values()
    ran = [each for each in states if each.start and each.state in ("completed", "failed")]
    for state in ran:
        # an agent runs the calls that are open in its log
        agent.log.replace([UserMessage("Go on."), AssistantMessage(tool_calls=(state.call,))])
        await agent.run()
        [result] = (each for each in agent.log if isinstance(each, ToolMessage))
        recorded, now = lines_of(state.result, ignore), lines_of(result, ignore)
        if recorded != now:
            what = f"{state.call.name} has another result than in {session.name}"
            diff = unified_diff(recorded, now, "recorded", "now", lineterm="", n=2)
            raise ReplayMismatch("\n".join([what, *diff]))
    return len(ran)


def lines_of(result: ToolMessage, ignore: str) -> list[str]:
    """Return the lines of a result to compare: without what matches `ignore`."""
    text = re.sub(ignore, "…", result.text)
    if result.is_error:
        text = f"error: {text}"
    return text.split("\n")


class Kept(Session, Agent):
    """An agent that keeps its session."""


def main(place: Path) -> None:
    """Make a session, make a test of it, and run that before and after a file has changed."""
    root = place / "project"
    root.mkdir()
    (root / "notes.txt").write_text("milk\n")
    calls = call("read", path="notes.txt"), call("write", path="notes.txt", content="milk\nbread\n")
    llm = ScriptedModel(*calls, "There is bread on the list now.")
    with Kept(llm=llm, tools=Workspace(root).tools, session="s", session_dir=place) as agent:
        print(agent.run_sync("Add bread to my list."))
    write_test(test := place / "as_test", place / "s.jsonl", root)
    for text, copy in ("milk\n", "first"), ("beer\n", "second"):
        (test / "files" / "notes.txt").write_text(text)
        (tmp := place / copy).mkdir()
        try:
            again = asyncio.run(run_again(make_agent, test / "s.jsonl", test / "files", tmp))
            print(again, "calls gave the same results again.")
        except ReplayMismatch as mismatch:
            print(mismatch)


if __name__ == "__main__":
    if sys.argv[1:]:
        write_test(Path(sys.argv[2]), Path(sys.argv[1]), Path.cwd())
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
