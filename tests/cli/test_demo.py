"""The demo: what it shows is what happened."""

import os
import re
import subprocess
import sys
import tempfile
from argparse import Namespace
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentloop.cli import demo
from agentloop.cli.main import main
from agentloop.messages import AssistantMessage, ToolMessage, ToolStart
from agentloop.store import read_log
from agentloop.transcript import open_states
from tests.doubles.openai_double import OpenAIDouble, Reply

ROOT = Path(__file__).parent.parent.parent
CALLS = sum(not isinstance(said, str) for turn in demo.SCRIPT[:-1] for said in turn)


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))


def provider(script):
    """A strict one, which answers with the script."""
    replies = (turn if isinstance(turn, str) else Reply(turn[0], turn[1:]) for turn in script)
    return OpenAIDouble(replies).in_thread()


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=200,
        **options,
    )


def played(*options):
    """What a demo shows, and its project."""
    done = run("-W", "error", "-m", "agentloop", "demo", *options, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the model's words are a script" in done.stdout.splitlines()[0]
    return done.stdout, Path(
        done.stdout.splitlines()[-1].split("The test passes. The project: ")[1]
    )


def test_it_ends_with_the_tests_passing_and_leaves_its_agent_as_a_file_that_runs_alone(capsys):
    shown, root = played()
    calls = sum(line.startswith("* ") for line in shown.splitlines())
    figures = re.findall(r"(\d+) requests, (\d+) tool calls, [\d,]+ tokens in", shown)
    assert figures == [(str(len(demo.SCRIPT)), str(CALLS))]
    assert calls == CALLS
    assert "FAILED (failures=1)" in shown
    prices = root / "prices.py"
    assert "sum(prices)" in prices.read_text(encoding="utf-8")
    assert f'=... python agent.py "{demo.TASK}"\n' in shown
    assert main(["bundle", "--check", str(root / "agent.py")]) == 0
    (root / "agentloop.py").write_text("raise AssertionError('the package is not needed')\n")
    prices.write_text(demo.PROJECT["prices.py"], encoding="utf-8")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with provider(demo.SCRIPT) as server:
        env = clean | {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.base_url}
        done = run("agent.py", demo.TASK, cwd=root, env=env, input="y\n" * CALLS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("May it call bash?") == 2
    assert done.stdout.endswith(f"{demo.SCRIPT[-1]}\n")
    assert "sum(prices)" in prices.read_text(encoding="utf-8")


def test_a_killed_agent_goes_on_and_its_tool_ran_once():
    shown, root = played("--kill")
    assert shown.count("* pay ") == 1
    if sys.platform != "win32":
        assert "exit status -9." in shown  # SIGKILL
    assert "its outcome is unknown" in shown
    assert shown.splitlines()[-3:-1] == [
        "Times that the tool ran, by its ledger: 1. Calls without an answer: 0. "
        "Follow-up request: accepted.",
        f"The session: {root / 's.jsonl'}",
    ]
    assert (root / demo.LEDGER).read_text(encoding="utf-8") == "paid 6\n"
    log = read_log(root / "s.jsonl")
    assert not open_states(log)
    started = [record.call_id for record in log if isinstance(record, ToolStart)]
    asked = [c.id for r in log if isinstance(r, AssistantMessage) for c in r.tool_calls]
    answered = [record.tool_call_id for record in log if isinstance(record, ToolMessage)]
    assert sorted(started) == sorted(asked) == sorted(answered)
    [found] = re.findall(r"(\d+) records read back, 1 call ", shown)
    assert log[int(found) - 1] == next(record for record in log if isinstance(record, ToolStart))


AGAIN = [*demo.KILL_SCRIPT[:2], ["Once more.", ("bash", {"command": "echo paid 6 >> ledger.txt"})]]


@pytest.mark.parametrize(
    ("script", "kill", "ledger"),
    [
        (demo.SCRIPT, False, ""),
        (demo.KILL_SCRIPT, True, "by its ledger: 1."),
        ([*AGAIN, *demo.KILL_SCRIPT[2:]], True, "by its ledger: 2."),
    ],
)
def test_a_provider_takes_its_requests_and_a_second_payment_fails_it(
    monkeypatch, capsys, script, kill, ledger
):
    for name in ("OPENAI_BASE_URL", "http_proxy"):  # neither they nor the key are used
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
    servers = []

    @contextmanager
    def strict(_, pause):
        with provider(script) as server:
            servers.append(server)
            yield server.base_url

    monkeypatch.setattr(demo, "loopback", strict)
    assert demo.main(Namespace(kill=kill)) == ("2." in ledger)
    assert ledger in capsys.readouterr().out
    assert (servers[0].refusals, servers[0].prefix_breaks) == ([], [])
    assert len(servers[0].requests) == len(script)
    assert "sk-secret-1" not in str(servers[0].headers)
