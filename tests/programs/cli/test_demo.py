"""The demo: a killed agent continues, and publishes only once."""

import re
import sys
import tempfile
import time
from pathlib import Path

import pytest

from .command import ROOT, run

STRICT = [sys.executable, "-W", "error", "-m", "agentloop", "demo"]


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """Run the demo: its output, its folder and its seconds."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(tmp_path))
    start = time.monotonic()
    done = run(program=STRICT, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    [folder] = tmp_path.glob("agentloop-demo-*")
    return done.stdout, folder, time.monotonic() - start


def test_a_killed_agent_continues_and_does_not_repeat_the_call(demo):
    output, folder, seconds = demo
    before, after = re.split(r"Killed process \d+", output)
    assert "FAILED (failures=1)" in before
    assert before.count("publish.py") == 1
    assert re.findall("publish.py\n  (.*?):", after) == [
        "Interrupted"
    ]  # the same call, not a new one
    assert "the model was told" in after
    assert (folder / "published.txt").read_text("utf-8") == "release 1.0.1\n"
    assert "sum(prices)" in (folder / "prices.py").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = re.search(r"```text demo\n(.*?)```", readme, re.DOTALL)[1]
    lines = map(re.escape, shown.splitlines())  # `...` is what differs on another machine
    assert re.search("\n".join(lines).replace(re.escape("..."), ".*"), output)
    page = Path(re.search(r"as a page: (\S+)", output)[1])
    assert "published once" in page.read_text("utf-8")
    assert seconds < 60  # 8 on an idle machine
