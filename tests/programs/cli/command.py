"""The command `agentloop` in a separate process: its streams, signals and exit status."""

import os
import subprocess
import sys
import tempfile

import pytest

from tests import ROOT

pytest.importorskip("termios", reason="the environment below is made for POSIX")
MODULE = [sys.executable, "-m", "agentloop"]
HOME = tempfile.TemporaryDirectory()  # for sessions and history, unless a test sets HOME
SECRET = ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "PYTEST", "COLUMNS", "LINES", "NO_COLOR")


def environment(**more):
    """Return this process's environment without API keys, server addresses or terminal settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(SECRET)}
    own = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")]),
        "PYTHONUTF8": "1",
        "TERM": "xterm",
        "HOME": HOME.name,
    }
    return inherited | own | more


def run(*arguments, cwd, program=MODULE, stdin="", **env):
    """Run `agentloop` with the arguments until completion."""
    return subprocess.run(
        [*program, *arguments],
        cwd=cwd,
        env=environment(**env),
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=200,
    )
