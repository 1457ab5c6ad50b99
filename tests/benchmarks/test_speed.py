"""The speed benchmark runs. No test asserts a duration."""

import os
import subprocess
import sys

import pytest

from .speed import ROOT, ROWS, python, ratio, serving, table
from .speed_worker import QUICK, Sizes

QUICKLY = [sys.executable, "-m", "tests.benchmarks.speed", "--quick"]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
def test_the_quick_mode_measures_everything_and_leaves_nothing_behind():
    env = os.environ | {"PYTHONIOENCODING": "utf-8"}
    # Returns when the last process with the pipes has ended, such as the server.
    done = subprocess.run(
        QUICKLY, cwd=ROOT, env=env, capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    head, _, *lines, nothing, machine = done.stdout.splitlines()
    assert cells(head) == ["measure", "floor", "agentloop", "ratio"]
    assert nothing == ""
    assert machine.startswith("Python 3.")
    for name, line in zip(ROWS, lines, strict=True):
        label, *values = cells(line)
        missing = [value for value in values if value == "–"]
        if name == "import":  # the floor has no value
            assert [values[0], values[2]] == missing, label
        elif name.startswith("tls"):  # requires openssl for a certificate
            assert len(missing) in (0, 3), label
        else:  # a constant clock or memory yields no ratio
            assert not missing or (values[2] == "–" and float(values[0]) == 0), label
        [float(value.replace(",", "")) for value in values if value != "–"]


def test_the_server_stops_if_a_measurement_fails():
    with pytest.raises(ZeroDivisionError), serving() as url:
        assert url.startswith("http://127.0.0.1:")
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="Connect"):
        python("-c", f"import httpx; httpx.get({url!r}, trust_env=False)")


def test_a_ratio_is_the_median_over_the_rounds_and_unknown_values_are_dashes():
    rounds = [(1, 2), (10, 30), (100, 900)]
    found = [{"floor": {"call": a}, "agentloop": {"call": b}} for a, b in rounds]
    assert ratio(found, "call") == 3
    assert "| 10.0 | 30.0 | 3.00 |" in table(found, Sizes())
    found = [{"floor": {"call": 0.0}, "agentloop": {"import": 1.5, "call": 1.0}}]
    assert ratio(found, "call") is None
    assert "ms | – | 1.50 | – |" in table(found, Sizes())
    assert "5,000 chunks" in table(found, Sizes())
    assert "100 chunks" in table(found, QUICK)
