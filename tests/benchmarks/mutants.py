"""The share of small changes of the core, of mixins or of models that their tests detect.

python -m tests.benchmarks.mutants [core | mixins | models] [--count 200] [--seed 1]

Each mutant is the package with one changed comparison, constant, statement or return value. The
core's tests, and before them the own tests of a mixin or those of the models, run on a copy of the
project with the mutant until a test fails. Mutants without a failing test are printed: either the
change has no effect, which requires a review, or a test is missing.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests import ROOT

NO_TESTS = ("__init__", "__main__", "agent")  # tables of names
CORE = [
    *(path.stem for path in (ROOT / "agentloop").glob("*.py") if path.stem not in NO_TESTS),
    *("common/tokens", "common/records"),
]


def parts(folder):
    return [f"{folder}/{path.stem}" for path in (ROOT / "agentloop" / folder).glob("[a-z]*.py")]


FILES = {"core": CORE, "mixins": parts("mixins"), "models": parts("models")}
TESTS = ["core", "library/common/test_tokens.py", "library/promises/test_inner_calls.py"]
SECONDS = 180  # after this time, the mutant counts as detected
OTHER = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant(NamedTuple):
    """A change: its position, its description, and the changed source."""

    file: str
    line: int
    change: str
    source: str


def changed(node):
    """Yield the replacements of a node, each with one change."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        other = deepcopy(node)
        other.ops[0] = OTHER[type(node.ops[0])]()
        yield other
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(OTHER[type(node.op)](), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Return) and not returns_none(node):
        yield ast.Return(None)
    elif may_be_dropped(node):
        yield ast.Pass()


def returns_none(node):
    """Return whether the node is `return` or `return None`."""
    if isinstance(node.value, ast.Constant):
        return node.value.value is None
    return node.value is None


def may_be_dropped(node):
    """Return whether a statement is a call, a raise, or an assignment to an attribute."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Attribute)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Raise | ast.AugAssign)


class Replace(ast.NodeTransformer):
    """Replaces a node by another node."""

    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        if node is self.old:
            return ast.copy_location(self.new, node)
        return self.generic_visit(node)


def mutants(source, file=""):
    """Return all mutants of a source."""
    found = []
    for number, node in enumerate(ast.walk(ast.parse(source))):
        for new in changed(node):
            tree = ast.parse(source)  # changed in place
            old = [*ast.walk(tree)][number]
            tree = ast.fix_missing_locations(Replace(old, new).visit(tree))
            change = f"{ast.unparse(node)} -> {ast.unparse(ast.fix_missing_locations(new))}"
            found.append(Mutant(file, node.lineno, change, ast.unparse(tree)))
    return found


def suite_of(file):
    """Return the tests of a file, the most specific ones first."""
    folder, _, name = file.rpartition("/")
    own = [f"library/{folder}/test_{name}.py"]
    if not (ROOT / "tests" / own[0]).exists():
        own = []
    return {"mixins": [*own, *TESTS], "models": [*own, "library/models"]}.get(folder, TESTS)


def is_noticed(mutant, folder):
    """Return whether a test fails with a mutant, in a copy of the project."""
    path = folder / "agentloop" / f"{mutant.file}.py"
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.source, encoding="utf-8")
    shutil.rmtree(
        folder / ".hypothesis", ignore_errors=True
    )  # examples on which the previous mutant failed
    tests = [f"tests/{name}" for name in suite_of(mutant.file)]
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    env = os.environ | {"PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(original, encoding="utf-8")
    return done.returncode != 0


def survivors(files, count, seed):
    """Return the undetected mutants of a sample, and the number of tested mutants."""
    sources = {name: (ROOT / "agentloop" / f"{name}.py") for name in sorted(files)}
    everything = []
    for name, path in sources.items():
        everything += mutants(path.read_text(encoding="utf-8"), name)
    sample = random.Random(seed).sample(everything, min(count, len(everything)))
    left = []
    with TemporaryDirectory() as there:
        folder = Path(there)
        for name in ("agentloop", "tests", "examples"):
            leave_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=leave_out)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, folder / name)
        for number, mutant in enumerate(sample, 1):
            if not is_noticed(mutant, folder):
                left.append(mutant)
                print(f"{number}: {mutant.file}.py:{mutant.line}: {mutant.change}", flush=True)
    return left, len(sample)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.mutants")
    parser.add_argument("what", nargs="?", choices=FILES, default="core")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    left, tried = survivors(FILES[given.what], given.count, given.seed)
    print(f"{tried - len(left)} of {tried} mutants are noticed")


if __name__ == "__main__":
    main()
