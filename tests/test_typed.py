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
LINES = enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
WRONG = {number for number, line in LINES if line.endswith("# E")}


def said_by(*command):
    return subprocess.run([*command, PROGRAM], cwd=ROOT, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_mypy_sees_what_is_wrong_and_nothing_else():
    said = said_by(sys.executable, "-m", "mypy", "--strict", "--no-pretty")
    assert {*map(int, re.findall(r"program\.py:(\d+): error", said))} == WRONG, said


@pytest.mark.slow
def test_pyright_sees_what_is_wrong_and_nothing_else():
    pyright = shutil.which("pyright", path=Path(sys.executable).parent)
    if pyright is None or subprocess.run([pyright, "--version"], capture_output=True).returncode:
        pytest.skip("pyright cannot be had here: it comes from the npm registry")
    report = json.loads(said_by(pyright, "--outputjson", "--pythonpath", sys.executable))
    found = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    assert {each["range"]["start"]["line"] + 1 for each in found} == WRONG, found
