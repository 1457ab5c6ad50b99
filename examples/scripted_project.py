"""A small project with a failing test, and a scripted model that fixes the project."""

import sys
import tempfile
from pathlib import Path

from loopback import Turn

PROJECT = {
    "prices.py": "def total(prices):\n    return sum(prices[1:])\n",
    "test_prices.py": (
        "import unittest\n\nfrom prices import total\n\n\n"
        "class TestTotal(unittest.TestCase):\n"
        "    def test_every_price_counts(self):\n"
        "        self.assertEqual(total([1, 2, 3]), 6)\n"
    ),
}
TESTS = f'"{sys.executable}" -m unittest -q'
SCRIPT: list[Turn] = [
    [("run", {"command": TESTS})],
    [("read", {"path": "prices.py"}), ("read", {"path": "test_prices.py"})],
    [("edit", {"path": "prices.py", "old": "sum(prices[1:])", "new": "sum(prices)"})],
    [("run", {"command": TESTS})],
    "The test passes now: total() omitted the first price.",
]


def make_project() -> Path:
    """Make the project in a new temporary folder."""
    root = Path(tempfile.mkdtemp(prefix="first-agent-"))
    for name, text in PROJECT.items():
        (root / name).write_text(text, encoding="utf-8")
    return root
