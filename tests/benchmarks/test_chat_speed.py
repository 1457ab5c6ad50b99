"""The benchmark of the chat runs. No test asserts a duration."""

import subprocess
import sys

import pytest

from tests.programs.chat.tmux import needs_tmux

from .speed import ROOT

pytest.importorskip("prompt_toolkit", reason="the chat draws with it")


@needs_tmux
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the CPU time is read from /proc")
def test_the_quick_mode_measures_streams_sessions_and_completions():
    command = [sys.executable, "-m", "tests.benchmarks.chat", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert len(rows) == 6
    assert rows[-1][2:] == ["6 of 6", "6 of 6"]
    for _, used, _, _ in rows:
        float(used)
