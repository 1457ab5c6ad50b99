"""The demo: what it shows is what happened."""

import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agentloop.cli import demo
from agentloop.cli.loopback import loopback
from agentloop.cli.terminal import Terminal

ROOT = Path(__file__).parent.parent.parent
CALLS = sum(not isinstance(said, str) for turn in demo.SCRIPT[:-1] for said in turn)


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))


def test_it_ends_with_the_tests_passing_and_figures_that_fit_what_it_showed():
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-m", "agentloop", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=50,
    )
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


def test_the_figures_are_those_of_the_requests(monkeypatch):
    seen = []

    def recorded(script, *, bodies, pause):
        seen.append(bodies)
        return loopback(script, bodies=bodies, pause=pause)

    monkeypatch.setattr(demo, "loopback", recorded)
    figures = demo.play(demo.make_project(), Terminal(io.StringIO()), pause=0)
    [bodies] = seen
    assert figures.requests == len(bodies) == len(demo.SCRIPT)
    last = json.loads(bodies[-1])["messages"]
    assert figures.calls == sum(message["role"] == "tool" for message in last) == CALLS
    prompts = [json.loads(body) for body in bodies]
    tokens = sum(len(json.dumps([body["messages"], body["tools"]])) // 4 for body in prompts)
    assert figures.usage.input_tokens == tokens
    assert figures.shared == demo.shared_prefixes(bodies)


def test_shared_prefixes_are_measured_in_bytes():
    def body(*messages):
        return json.dumps({"messages": list(messages), "tools": ["t"]}).encode()

    # '[["t"], "aaaa"' has 14 bytes, '[["t"], "aaaa", "bb"' has 20
    assert demo.shared_prefixes([body("aaaa"), body("aaaa", "bb"), body("aaaa")]) == [0, 14 / 20, 1]


def test_it_fails_if_the_project_is_not_mended(monkeypatch):
    monkeypatch.setattr(demo, "SCRIPT", [demo.SCRIPT[0], "I have no idea."])
    stream = io.StringIO()
    assert demo.demo(Terminal(stream)) == 1
    assert "The test still fails" in stream.getvalue()


def test_the_key_in_the_environment_stays_at_home(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    stream = io.StringIO()
    assert demo.play(demo.make_project(), Terminal(stream), pause=0).requests == len(demo.SCRIPT)
