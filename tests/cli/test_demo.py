"""The demo: what it shows is what happened, and a provider takes its requests."""

import json
import sys
import tempfile
from pathlib import Path

import pytest

from agentloop import ChatOpenAI
from agentloop.cli import demo
from agentloop.cli.bundle import bundle, choose, read_package
from agentloop.cli.main import main
from tests.cli.command import ROOT, run
from tests.doubles.openai_double import OpenAIDouble, Reply

CALLS = sum(len(said.tool_calls) for said in demo.SCRIPT)
STRICT = [sys.executable, "-W", "error", "-m", "agentloop", "demo"]


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))


def provider(script):
    """Start a strict double of a provider that answers with the script."""
    replies = []
    for said in script:
        calls = [(each.name, json.loads(each.arguments)) for each in said.tool_calls]
        replies.append(Reply(said.text, calls))
    return OpenAIDouble(replies).in_thread()


def played():
    """Return the output of the demo, and its project."""
    done = run(program=STRICT, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    first, *_, last = done.stdout.splitlines()
    assert "scripted" in first
    return done.stdout, Path(last.removeprefix("The test passes. The project: "))


def test_it_ends_with_the_tests_passing_and_leaves_its_agent_as_a_file_that_runs_alone():
    shown, root = played()
    assert sum(line.startswith("* ") for line in shown.splitlines()) == CALLS
    assert "FAILED (failures=1)" in shown
    prices = root / "prices.py"
    assert "sum(prices)" in prices.read_text(encoding="utf-8")
    assert f'=... "{sys.executable}" agent.py "{demo.TASK}"\n' in shown
    assert (
        (root / "agent.py")
        .read_text(encoding="utf-8")
        .startswith(bundle(choose(read_package(), demo.PARTS)))
    )
    assert main(["replay", str(root / "demo.jsonl")]) == 0
    (root / "agentloop.py").write_text("raise AssertionError('the package is not needed')\n")
    prices.write_text(demo.PROJECT["prices.py"], encoding="utf-8")
    with provider(demo.SCRIPT) as server:
        model = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.base_url, "PYTHONPATH": ""}
        alone = {"program": [sys.executable, "agent.py"], "cwd": root, "stdin": "y\n" * CALLS}
        done = run(demo.TASK, **alone, **model)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Allow the call of bash?") == 2
    assert done.stdout.endswith(f"{demo.SCRIPT[-1].text}\n")
    assert "sum(prices)" in prices.read_text(encoding="utf-8")


def test_a_provider_takes_its_requests(monkeypatch):
    with provider(demo.SCRIPT) as server:

        def scripted(*replies):
            return ChatOpenAI("scripted", base_url=server.base_url, api_key="none-needed")

        monkeypatch.setattr(demo, "ScriptedModel", scripted)
        assert main(["demo"]) == 0
    assert (server.refusals, server.prefix_breaks) == ([], [])
    assert len(server.requests) == len(demo.SCRIPT)
