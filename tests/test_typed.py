"""Checkers see the settings of all mixins, tools as the functions they are, and typed events."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "tests" / "typed" / "program.py"
WRONG = {
    number
    for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
    if line.endswith("# E")
}


@pytest.mark.slow
def test_mypy_sees_what_is_wrong_and_nothing_else():
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", str(PROGRAM)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = re.findall(r"program\.py:(\d+): error", done.stdout)
    assert {int(number) for number in found} == WRONG, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_sees_what_is_wrong_and_nothing_else():
    pyright = shutil.which("pyright", path=Path(sys.executable).parent)
    if pyright is None or subprocess.run([pyright, "--version"], capture_output=True).returncode:
        pytest.skip("pyright cannot be had here: it comes from the npm registry")
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, str(PROGRAM)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout)["generalDiagnostics"]
    lines = {each["range"]["start"]["line"] + 1 for each in report if each["severity"] == "error"}
    assert lines == WRONG, report
