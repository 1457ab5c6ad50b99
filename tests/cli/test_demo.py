"""The demo: what it shows is what happened."""

import os
import re
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

import pytest

from agentloop.cli import demo
from agentloop.cli.loopback import loopback
from agentloop.cli.main import main
from agentloop.messages import AssistantMessage, ToolMessage, ToolStart
from agentloop.store import read_log
from agentloop.transcript import open_calls
from tests.doubles import openai_double

ROOT = Path(__file__).parent.parent.parent
CALLS = sum(not isinstance(said, str) for turn in demo.SCRIPT[:-1] for said in turn)


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.fixture
def play(monkeypatch, capsys):
    """Plays a demo: its exit status, what it showed, its folder, and the bodies of its requests."""

    def play(kill=False):
        sent = []

        def recorded(script, *, bodies=None, pause):
            return loopback(
                script, bodies=sent if bodies is None else sent.append(bodies) or bodies
            )

        monkeypatch.setattr(demo, "loopback", recorded)
        status = demo.run(Namespace(kill=kill, dump=None))
        shown = capsys.readouterr().out
        root = Path(shown.splitlines()[-1].partition("project: ")[2])
        return status, shown, root, sent[0] if sent and isinstance(sent[0], list) else sent

    return play


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "agentloop", "demo", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=200,
    )


def test_it_ends_with_the_tests_passing_and_figures_that_fit_what_it_showed():
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "the model's words are a script" in lines[0]
    shown = sum(line.startswith("* ") for line in lines)
    [requests, calls] = re.findall(r"(\d+) requests, (\d+) tool calls", done.stdout)[0]
    assert (int(requests), int(calls)) == (len(demo.SCRIPT), shown) == (len(demo.SCRIPT), CALLS)
    shared = re.findall(r"(\d+) of (\d+)", done.stdout)
    lengths = [0, *(int(of) for _, of in shared)]
    assert [int(kept) for kept, _ in shared] == lengths[:-1], "each request begins like the last"
    assert "FAILED (failures=1)" in done.stdout
    assert lines[-1].startswith("The test passes. The project: ")
    root = Path(lines[-1].partition("project: ")[2])
    assert "sum(prices)" in (root / "prices.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("kill", [False, True])
def test_a_provider_takes_its_requests_and_a_key_stays_at_home(monkeypatch, play, kill):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    status, shown, _, bodies = play(kill)
    assert status == 0
    assert len(bodies) == len(demo.KILL_SCRIPT if kill else demo.SCRIPT)
    for body in bodies:
        openai_double.check(openai_double.parse(body))
    if not kill:
        assert f"\n{sum(len(body) // 4 for body in bodies):,} tokens in, " in shown


def test_the_agent_is_left_as_a_bundle_that_runs_alone(play, capsys):
    status, shown, root, _ = play()
    assert status == 0
    assert f'=... python agent.py "{demo.TASK}"\n' in shown
    assert main(["bundle", "--check", str(root / "agent.py")]) == 0
    (root / "agentloop.py").write_text("raise AssertionError('the package is not needed')\n")
    prices = root / "prices.py"
    prices.write_text(demo.PROJECT["prices.py"], encoding="utf-8")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with loopback(demo.SCRIPT) as base_url:
        done = subprocess.run(
            [sys.executable, "agent.py", demo.TASK],
            cwd=root,
            env=clean | {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": base_url},
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


# ---- the kill


def test_a_killed_agent_goes_on_and_its_tool_ran_once():
    done = run("--kill")
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
    assert (root / demo.LEDGER).read_text(encoding="utf-8") == "paid 6\n"
    log = read_log(root / "s.jsonl")
    assert not open_calls(log)
    started = [record.call_id for record in log if isinstance(record, ToolStart)]
    asked = [c.id for r in log if isinstance(r, AssistantMessage) for c in r.tool_calls]
    answered = [record.tool_call_id for record in log if isinstance(record, ToolMessage)]
    assert sorted(started) == sorted(asked) == sorted(answered)
    [found] = re.findall(r"(\d+) records read back, 1 call ", done.stdout)
    assert log[int(found) - 1] == next(record for record in log if isinstance(record, ToolStart))


def test_a_second_payment_fails_the_demo(monkeypatch, play):
    script = [*demo.KILL_SCRIPT[:2], [("bash", {"command": "echo paid 6 >> ledger.txt"})]]
    monkeypatch.setattr(demo, "KILL_SCRIPT", [*script, *demo.KILL_SCRIPT[2:]])
    status, shown, *_ = play(kill=True)
    assert status == 1
    assert "by its ledger: 2." in shown
