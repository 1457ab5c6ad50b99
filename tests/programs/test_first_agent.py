"""The first agent works with its script, and with a server of another project."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentloop import BadRequest, ChatOpenAI, TextDeltaEvent, ToolMessage, UserMessage, tool
from tests import ROOT

LLMockServer = pytest.importorskip("llmock.testing").LLMockServer
PROGRAM = ROOT / "examples" / "first_agent.py"


def run(*arguments, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_")}
    return subprocess.run(
        [sys.executable, "-W", "error", PROGRAM, *map(str, arguments)],
        env=clean | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_without_a_key_the_program_reports_its_script_and_fixes_the_project():
    done = run()
    assert done.returncode == 0, done.stderr
    assert "script" in done.stdout.splitlines()[0]
    assert "FAILED (failures=1)" in done.stdout
    folder = Path(re.search(r"The folder: (.*)", done.stdout)[1])
    subprocess.run([sys.executable, "-m", "unittest", "-q"], cwd=folder, check=True)
    assert "sum(prices)" in (folder / "prices.py").read_text()


def test_the_program_works_in_a_folder_with_a_server_of_another_project(tmp_path):
    (tmp_path / "notes.txt").write_text("milk")
    with LLMockServer() as server:
        url = server.base_url("openai")
        done = run(tmp_path, "Read notes.txt", OPENAI_BASE_URL=url, OPENAI_API_KEY="k")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^> (read|write|edit|run) ", done.stdout, re.MULTILINE)
    assert "tokens in" in done.stdout


def test_errors_are_one_line(tmp_path):
    done = run(tmp_path / "nope", "x", OPENAI_API_KEY="k")
    assert done.returncode == 2
    assert "no such folder" in done.stderr
    done = run(tmp_path, " ", OPENAI_API_KEY="k", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert done.stderr.splitlines() == ["ValueError: the prompt is empty: write the task"]


# ---- the server that plays the script and validates requests

ADDING = [
    ["I add  them.\n", ("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": '"é"'})],
    [("add", {})],
    "Done: \U0001f600.",
]


@tool("Adds two numbers.")
async def add(a: int, b: int) -> int:
    return a + b


async def test_the_server_plays_the_script_and_rejects_invalid_requests(monkeypatch):
    monkeypatch.syspath_prepend(PROGRAM.parent)
    from loopback import loopback

    log, replies, deltas = [UserMessage("go")], [], []
    with loopback(ADDING) as base_url:
        async with ChatOpenAI("scripted", base_url=base_url, api_key="k") as llm:
            for _ in ADDING:
                replies.append(reply := await llm.ainvoke(log, [add], on_delta=deltas.append))
                log += [reply, *(ToolMessage(c.id, c.name, "x") for c in reply.tool_calls)]
            for bad in ([*log, UserMessage("and?")], [*log[:2], log[2]]):
                with pytest.raises(BadRequest, match="script has ended"):
                    await llm.ainvoke(bad, [add], on_delta=deltas.append)
    assert [reply.content for reply in replies] == ["I add  them.\n", "", "Done: \U0001f600."]
    calls = [[(c.name, json.loads(c.arguments)) for c in reply.tool_calls] for reply in replies]
    assert calls == [ADDING[0][1:], ADDING[1], []]
    assert [reply.stop_reason for reply in replies] == ["tool_calls", "tool_calls", "end"]
    assert all(reply.usage.input_tokens and reply.usage.output_tokens for reply in replies)
    pieces = [delta.content for delta in deltas if isinstance(delta, TextDeltaEvent)]
    assert pieces == ["I ", "add  ", "them.\n", "Done: ", "\U0001f600."]
