"""The demo: what it shows is what happened."""

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agentloop.cli import demo, kill
from agentloop.cli.loopback import loopback
from agentloop.cli.main import main
from agentloop.cli.models import DEFAULT_MODELS, model_at
from agentloop.cli.terminal import Terminal
from agentloop.messages import AssistantMessage, ToolMessage, ToolStart
from agentloop.store import read_log
from agentloop.transcript import open_calls
from tests import some
from tests.doubles import anthropic_double, google_double, openai_double

ROOT = Path(__file__).parent.parent.parent
CALLS = sum(not isinstance(said, str) for turn in demo.SCRIPT[:-1] for said in turn)
CHECKS = {
    "openai": openai_double.check,
    "anthropic": anthropic_double.check,
    "google": google_double.check,
}
each_wire = pytest.mark.parametrize("wire", some([*DEFAULT_MODELS], 1))


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.fixture
def served(monkeypatch):
    """The bodies of all requests to the server of a demo."""
    all_bodies = []

    def recorded(script, *, bodies=None, pause):
        all_bodies.append([] if bodies is None else bodies)
        return loopback(script, bodies=all_bodies[-1], pause=0)

    monkeypatch.setattr(demo, "loopback", recorded)
    monkeypatch.setattr(kill, "loopback", recorded)
    return lambda: [body for bodies in all_bodies for body in bodies]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "agentloop", "demo", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=200,
    )


def shown_by(play, *arguments):
    stream = io.StringIO()
    return play(Terminal(stream), *arguments), stream.getvalue()


@each_wire
def test_it_ends_with_the_tests_passing_and_figures_that_fit_what_it_showed(wire):
    done = run("--wire", wire)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "the model's words are a script" in lines[0]
    shown = sum(line.startswith("* ") for line in lines)
    [requests, calls] = re.findall(r"(\d+) requests, (\d+) tool calls", done.stdout)[0]
    assert (int(requests), int(calls)) == (len(demo.SCRIPT), shown) == (len(demo.SCRIPT), CALLS)
    [first, *later] = [int(share) for share in re.findall(r"(\d+)%", done.stdout)]
    assert first == 0
    assert len(later) == len(demo.SCRIPT) - 1
    assert all(50 < share < 100 for share in later)
    assert "FAILED (failures=1)" in done.stdout
    assert lines[-1].startswith("The test passes. The project: ")
    root = Path(lines[-1].partition("project: ")[2])
    assert "sum(prices)" in (root / "prices.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("wire", DEFAULT_MODELS)
def test_the_figures_are_those_of_requests_that_the_provider_takes(served, wire):
    status, shown = shown_by(demo.demo, wire)
    bodies = served()
    assert (status, len(bodies)) == (0, len(demo.SCRIPT))
    for body in bodies:
        CHECKS[wire](json.loads(body))
    tokens = sum(len(body) // 4 for body in bodies)
    shares = ", ".join(f"{share:.0%}" for share in demo.shared_prefixes(bodies))
    assert f"\n{len(bodies)} requests, {CALLS} tool calls, " in shown
    assert f"\n{tokens:,} tokens in, " in shown
    assert f"could be cached: {shares}\n" in shown


def test_the_key_in_the_environment_stays_at_home(monkeypatch, served):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert shown_by(demo.demo)[0] == 0
    assert len(served()) == len(demo.SCRIPT)


# ---- what it leaves


@each_wire
def test_the_agent_is_left_as_a_file_that_runs_alone(wire):
    status, shown = shown_by(demo.demo, wire)
    assert status == 0
    root = Path(shown.splitlines()[-1].partition("project: ")[2])
    assert f'=... python agent.py "{demo.TASK}"\n' in shown
    (root / "agentloop.py").write_text("raise AssertionError('the package is not needed')\n")
    prices = root / "prices.py"
    prices.write_text(demo.PROJECT["prices.py"], encoding="utf-8")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with loopback(demo.SCRIPT) as base_url:
        kind = type(model_at(wire, "x", base_url, "k"))
        done = subprocess.run(
            [sys.executable, "agent.py", demo.TASK],
            cwd=root,
            env=clean | {kind.key_variable: "k", kind.url_variable: base_url},
            input="y\n" * CALLS,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=200,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("May it call bash?") == 2
    assert done.stdout.endswith(f"{demo.SCRIPT[-1]}\n")
    assert "sum(prices)" in prices.read_text(encoding="utf-8")


def test_the_file_that_it_leaves_is_a_bundle_that_can_be_upgraded(capsys):
    _, shown = shown_by(demo.demo)
    path = Path(shown.splitlines()[-1].partition("project: ")[2]) / "agent.py"
    assert main(["bundle", "--check", str(path)]) == 0
    assert "changed" not in capsys.readouterr().out


# ---- the kill


@each_wire
def test_a_killed_agent_goes_on_and_its_tool_ran_once(wire):
    done = run("--kill", "--wire", wire)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "the model's words are a script" in lines[0]
    assert done.stdout.count("* pay ") == 1
    if sys.platform != "win32":
        assert "exit status -9." in done.stdout  # SIGKILL
    assert "its outcome is unknown" in done.stdout
    assert lines[-3] == (
        "Times that the tool ran, by its ledger: 1. Calls without an answer: 0. "
        "Follow-up request: accepted."
    )
    root = Path(lines[-1].removeprefix("The test passes. The project: "))
    assert lines[-2] == f"The session: {root / 's.jsonl'}"
    assert (root / kill.LEDGER).read_text(encoding="utf-8") == "paid 6\n"
    log = read_log(root / "s.jsonl")
    assert not open_calls(log)
    started = [record.call_id for record in log if isinstance(record, ToolStart)]
    asked = [c.id for r in log if isinstance(r, AssistantMessage) for c in r.tool_calls]
    answered = [record.tool_call_id for record in log if isinstance(record, ToolMessage)]
    assert sorted(started) == sorted(asked) == sorted(answered)
    [found] = re.findall(r"(\d+) records read back, 1 call ", done.stdout)
    assert log[int(found) - 1] == next(record for record in log if isinstance(record, ToolStart))


@pytest.mark.parametrize("wire", DEFAULT_MODELS)
def test_a_provider_takes_the_requests_before_and_after_the_kill(served, wire):
    assert shown_by(kill.kill_demo, wire)[0] == 0
    bodies = served()
    assert len(bodies) == len(kill.SCRIPT)
    for body in bodies:
        CHECKS[wire](json.loads(body))


def test_a_second_payment_fails_the_demo(monkeypatch):
    script = [*kill.SCRIPT[:2], [("bash", {"command": "echo paid 6 >> ledger.txt"})]]
    monkeypatch.setattr(kill, "SCRIPT", [*script, *kill.SCRIPT[2:]])
    status, shown = shown_by(kill.kill_demo)
    assert status == 1
    assert "by its ledger: 2." in shown
