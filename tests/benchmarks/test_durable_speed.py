"""The benchmark of Durable runs. No test asserts a duration."""

import subprocess
import sys

import pytest

from .speed import ROOT

pytest.importorskip("dbos")


@pytest.mark.slow
def test_the_quick_mode_measures_each_number_of_workers(tmp_path):
    url = f"sqlite:///{tmp_path / 'benchmark.sqlite'}"
    command = [sys.executable, "-m", "tests.benchmarks.durable", "--quick", "--url", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:5]]
    assert [row[0] for row in rows] == ["1", "2", "4"]
    assert all(float(cell.replace(",", "")) > 0 for row in rows for cell in row)


def test_the_requirements_of_1000_workers_are_computed_from_the_cost_of_a_row():
    from .durable import on_paper

    needed = "".join(on_paper(1_000, 4_300, 1.2e6, 1.0e6))
    assert "12,000 rows/s, 14 MB/s of log, 51,600 transactions/s, 2.9 TB/day" in needed
