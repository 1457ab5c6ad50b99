"""Type checkers recognize settings of all mixins, signatures of tools, and typed events."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

PROGRAM = ROOT / "tests" / "typed" / "program.py"
LINES = enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
WRONG = {number for number, line in LINES if line.endswith("# E")}


def output_of(*command):
    return subprocess.run([*command, PROGRAM], cwd=ROOT, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_mypy_reports_exactly_the_marked_errors():
    pytest.importorskip("mypy")
    output = output_of(sys.executable, "-m", "mypy", "--strict", "--no-pretty")
    assert {*map(int, re.findall(r"program\.py:(\d+): error", output))} == WRONG, output


@pytest.mark.slow
def test_pyright_reports_exactly_the_marked_errors():
    pyright = shutil.which("pyright", path=Path(sys.executable).parent)
    if pyright is None or subprocess.run([pyright, "--version"], capture_output=True).returncode:
        pytest.skip("pyright is not available: it requires the npm registry")
    report = json.loads(output_of(pyright, "--outputjson", "--pythonpath", sys.executable))
    errors = [item for item in report["generalDiagnostics"] if item["severity"] == "error"]
    assert {error["range"]["start"]["line"] + 1 for error in errors} == WRONG, errors
