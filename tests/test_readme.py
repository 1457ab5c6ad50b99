"""The README is true: its blocks run, and its names and numbers are those of the package."""

import contextlib
import importlib
import io
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from agentloop import Agent, ChatAnthropic, ChatOpenAI, CompactionConfig, Repetition
from agentloop.store import SESSION_DIR

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PRODUCT = README.partition("## Changelog\n")[0]
FOUND = re.findall(r"^```(\w*) ?(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
BLOCKS = {label: text for _, label, text in FOUND}
PROGRAMS = [  # with what their last line prints
    (text, "".join(re.findall(r"^print\(.*\)  # (.*\n)", text, re.MULTILINE)))
    for kind, label, text in FOUND
    if (kind, label) == ("python", "")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ROWS = re.findall(r"^\| (`.*?) \| .* \|$", PRODUCT, re.MULTILINE)
LESSONS = len(list((ROOT / "examples" / "lessons").glob("[0-9]*.py")))
DURABLE = """
import asyncio
{}
DBOS(config={} | {{"log_level": "ERROR"}})
DBOS.launch()
print(asyncio.run(answer("Is it open?")))
DBOS.destroy()
"""


def execute(program):
    code = compile(program, "README.md", "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__"})


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_every_program_runs(program, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        execute(program)
    assert printed.getvalue() == output or "def main" in program


def test_the_models_take_their_keys_from_the_environment(monkeypatch):
    for key in re.findall(r"\w+_API_KEY", BLOCKS["models"]):
        monkeypatch.setenv(key, "k")
    execute(BLOCKS["models"])


def test_the_durable_run_runs(tmp_path):
    pytest.importorskip("dbos")
    [config] = re.findall(r"`DBOS\(config=(.*?)\)`", PRODUCT)
    program = DURABLE.format(BLOCKS["durable"], config)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("Yes.\n", "")


def test_the_loop_is_the_one_that_ships():
    code = (ROOT / "agentloop" / "loop.py").read_text(encoding="utf-8")
    without_comments = re.sub(r"  #.*$|^ *#.*\n", "", code, flags=re.MULTILINE)
    assert textwrap.indent(BLOCKS["loop"], " " * 12) in without_comments


def test_the_commands_are_those_of_ci_with_extras_that_there_are():
    assert BLOCKS["test"].splitlines()[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    extras = re.findall(r"\.\[(\w+)\]|\(extra `(\w+)`\)", PRODUCT)
    assert {"".join(extra) for extra in extras} <= PROJECT["optional-dependencies"].keys()


def test_each_mixin_and_toolkit_is_imported_as_the_table_says_and_none_is_left_out():
    names = re.findall(r"`((?:mixins|toolkits)\.[\w.]+)`", PRODUCT)
    names += [name for row in ROWS for name in re.findall(r"`(\w+)`", row)]
    modules = set()
    for name in names:
        module, _, attribute = f"agentloop.{name}".rpartition(".")
        modules.add(getattr(importlib.import_module(module), attribute).__module__)
    files = [
        path
        for folder in ("mixins", "toolkits")
        for path in (ROOT / "agentloop" / folder).glob("[a-z]*.py")
    ]
    assert modules == {f"agentloop.{path.parent.name}.{path.stem}" for path in files}


@pytest.mark.parametrize(
    "fact",
    [
        f"`class Agent({', '.join(base.__name__ for base in Agent.__bases__)})`",
        f"summarizes at {100 * CompactionConfig().threshold_ratio:.0f} % of",
        f"the same turn {Repetition.repetition_limit} times in a row",
        f"One layer retries: up to {1 + ChatOpenAI.max_retries} attempts in all",
        f"Python {PROJECT['requires-python'].removeprefix('>=')} or newer",
        f"[Lessons](examples/lessons/README.md): {LESSONS}, each",
        f"in {SESSION_DIR} without",
        *(f"# {model.key_variable}" for model in (ChatOpenAI, ChatAnthropic)),
    ],
)
def test_a_number_or_a_name_is_that_of_the_package(fact):
    assert fact in PRODUCT


def test_the_prose_of_the_benchmarks_has_the_numbers_of_their_table():
    page = (ROOT / "tests" / "benchmarks" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| ((?:[\d.]+ / [\d.]+% \|? ?){7})", page, re.MULTILINE)
    costs = {name: re.findall(r"([\d.]+) / ([\d.]+)%", cells) for name, cells in rows}
    per_turn, agent = ([row[at] for row in costs.values()] for at in (1, 5))
    budget = [row[6] for name, row in costs.items() if name.endswith("in a row")]
    [coding] = [row[6] for name, row in costs.items() if name.startswith("coding")]
    for sentence in (
        f"costs up to {max(per_turn)[0]} of no pruning",
        f"{max(agent)[0]} in this table",
        f"costs {min(budget)[0]} to {max(budget)[0]} of no pruning on the long conversations",
        f"{max(gone for _, gone in budget)} % of the values or less",
        f"it costs {coding[0]}, but {coding[1]} % are gone",
    ):
        assert sentence in " ".join(page.split())


def test_its_links_lead_somewhere():
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PRODUCT):
        path = ROOT / (target or "README.md")
        assert path.exists(), target
        text = path.read_text(encoding="utf-8") if anchor else ""
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        places = {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings}
        assert not anchor or anchor in places, anchor


def test_it_is_read_in_one_sitting():
    assert len(PRODUCT.splitlines()) <= 230
    assert max(map(len, PRODUCT.splitlines())) <= 150
