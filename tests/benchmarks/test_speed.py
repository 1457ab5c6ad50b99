"""That the speed benchmark works. How long anything takes is asserted nowhere."""

import os
import subprocess
import sys
import time

import pytest

from .speed import ROOT, ROWS, python, ratio, serving, table
from .speed_worker import QUICK, Sizes

WITHOUT_FLOOR = {"import"}
QUICKLY = [sys.executable, "-m", "tests.benchmarks.speed", "--quick"]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def wait_until_gone(group):
    """Until no process is left in a process group."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail("a process is left")


@pytest.mark.slow
def test_the_quick_mode_measures_everything_and_leaves_nothing_behind():
    posix = os.name == "posix"
    with subprocess.Popen(
        QUICKLY,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        start_new_session=posix,
    ) as benchmark:
        try:
            benchmark.wait(200)
            if posix:
                wait_until_gone(benchmark.pid)
            # Anywhere: its pipes end with the last process that has them, such as the server.
            printed, complaints = benchmark.communicate(timeout=100)
        finally:
            benchmark.kill()
    assert benchmark.returncode == 0, complaints
    head, _, *lines, nothing, machine = printed.splitlines()
    assert cells(head) == ["measure", "floor", "agentloop", "ratio"]
    assert nothing == ""
    assert machine.startswith("Python 3.")
    assert len(lines) == len(ROWS)
    for name, line in zip(ROWS, lines, strict=True):
        label, *values = cells(line)
        if sys.platform == "win32" and name == "crowd memory":
            continue
        missing = [value for value in values if value == "–"]
        if name in WITHOUT_FLOOR:
            assert [values[0], values[2]] == missing, label
        else:  # a clock or a memory that stood still gives no ratio
            assert not missing or (values[2] == "–" and float(values[0]) == 0), label
        [float(value.replace(",", "")) for value in values if value != "–"]


def test_the_server_ends_when_a_measure_fails():
    with pytest.raises(ZeroDivisionError), serving() as url:
        assert url.startswith("http://127.0.0.1:")
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="Connect"):
        python("-c", f"import httpx; httpx.get({url!r}, trust_env=False)")


def test_a_ratio_is_the_median_of_those_within_the_rounds_and_what_is_unknown_a_dash():
    rounds = [(1, 2), (10, 30), (100, 900)]
    found = [{"floor": {"call": a}, "agentloop": {"call": b}} for a, b in rounds]
    assert ratio(found, "call") == 3
    assert "| 10.0 | 30.0 | 3.00 |" in table(found, Sizes())
    found = [{"floor": {"call": 0.0}, "agentloop": {"import": 1.5, "call": 1.0}}]
    assert ratio(found, "call") is None
    assert "ms | – | 1.50 | – |" in table(found, Sizes())
    assert "5,000 chunks" in table(found, Sizes())
    assert "100 chunks" in table(found, QUICK)
