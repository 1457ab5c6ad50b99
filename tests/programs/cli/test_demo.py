"""The demo: its output matches its project, and a provider accepts its requests."""

import json
import sys
import tempfile
from pathlib import Path

import pytest

from agentloop import ChatOpenAI
from agentloop.cli import demo
from agentloop.cli.bundle import bundle, choose, read_package
from agentloop.cli.main import main
from tests.doubles.openai_double import OpenAIDouble, Reply

from .command import ROOT, run

CALLS = sum(len(reply.tool_calls) for reply in demo.SCRIPT)
STRICT = [sys.executable, "-W", "error", "-m", "agentloop", "demo"]


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))


def provider(script):
    """Start a strict double of a provider that replies with the script."""
    replies = []
    for reply in script:
        calls = [(call.name, json.loads(call.arguments)) for call in reply.tool_calls]
        replies.append(Reply(reply.text, calls))
    return OpenAIDouble(replies).in_thread()


def run_demo():
    """Run the demo, and return its output and its project folder."""
    done = run(program=STRICT, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    first, *_, last = done.stdout.splitlines()
    assert "scripted" in first
    return done.stdout, Path(last.removeprefix("The test passes. The project: "))


def test_the_tests_of_the_demo_pass_and_its_agent_is_a_standalone_file():
    output, root = run_demo()
    assert sum(line.startswith("* ") for line in output.splitlines()) == CALLS
    assert "FAILED (failures=1)" in output
    prices = root / "prices.py"
    assert "sum(prices)" in prices.read_text(encoding="utf-8")
    assert f'=... "{sys.executable}" agent.py "{demo.TASK}"\n' in output
    assert (
        (root / "agent.py")
        .read_text(encoding="utf-8")
        .startswith(bundle(choose(read_package(), demo.PARTS)))
    )
    assert main(["replay", str(root / "demo.jsonl")]) == 0
    (root / "agentloop.py").write_text("raise AssertionError('the package is not required')\n")
    prices.write_text(demo.PROJECT["prices.py"], encoding="utf-8")
    with provider(demo.SCRIPT) as server:
        model = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.base_url, "PYTHONPATH": ""}
        alone = {"program": [sys.executable, "agent.py"], "cwd": root, "stdin": "y\n" * CALLS}
        done = run(demo.TASK, **alone, **model)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Allow the call of bash?") == 2
    assert done.stdout.endswith(f"{demo.SCRIPT[-1].text}\n")
    assert "sum(prices)" in prices.read_text(encoding="utf-8")


def test_a_provider_accepts_the_requests_of_the_demo(monkeypatch):
    with provider(demo.SCRIPT) as server:

        def scripted(*replies):
            return ChatOpenAI("scripted", base_url=server.base_url, api_key="none-needed")

        monkeypatch.setattr(demo, "ScriptedModel", scripted)
        assert main(["demo"]) == 0
    assert (server.refusals, server.prefix_breaks) == ([], [])
    assert len(server.requests) == len(demo.SCRIPT)
