"""The README is correct: its blocks run, and its names and numbers match the package."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest

from agentloop import ChatAnthropic, ChatOpenAI, CompactionConfig
from agentloop.common.store import SESSION_DIR
from agentloop.models import completions
from agentloop.models.wire import NEEDS_THOUGHTS
from tests import ROOT
from tests.programs.cli.held_double import HeldDouble

PACKAGE = ROOT / "agentloop"
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOUND = re.findall(r"^```(\w*) ?(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
BLOCKS = {label: text for _, label, text in FOUND}
PROGRAMS = [  # with the output of their last line
    (text, "".join(re.findall(r"^print\(.*\)  # (.*\n)", text, re.MULTILINE)))
    for kind, label, text in FOUND
    if (kind, label) == ("python", "")
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PARTS = (PACKAGE / "PARTS.md").read_text(encoding="utf-8")
PAGES = {ROOT / "README.md": README, PACKAGE / "PARTS.md": PARTS}
LESSONS = len(list((ROOT / "examples" / "lessons").glob("[0-9]*.py")))


def execute(program):
    exec(compile(program, "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_every_program_runs(program, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        execute(program)
    assert printed.getvalue() == output or "def main" in program


def test_the_killed_program_continues_when_it_is_run_again(tmp_path):
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", BLOCKS["twice"]]
    printed = [
        subprocess.run(program, env=os.environ | home, capture_output=True, text=True, timeout=60)
        for _ in range(2)
    ]
    [shown] = re.findall(r"# (Interrupted.*)", BLOCKS["twice"])
    assert (printed[0].returncode, printed[0].stdout) == (1, "Ada is paid.\n")
    assert matches([shown], printed[1].stdout), printed[1]


@pytest.mark.parametrize(
    "name", ["RunStopped", "ImagePart", "SystemMessage", "NeedsApproval", "is_approved"]
)
def test_a_name_in_the_text_can_be_imported_from_agentloop(name):
    assert name in README
    assert resolve_name(f"agentloop:{name}")


def test_models_read_their_keys_from_the_environment(monkeypatch):
    for key in re.findall(r"\w+_API_KEY", BLOCKS["models"]):
        monkeypatch.setenv(key, "k")
    execute(BLOCKS["models"])


def test_the_loop_in_the_readme_is_identical_to_loop_py():
    code = (PACKAGE / "loop.py").read_text(encoding="utf-8")
    without_comments = re.sub(r"  #.*$|^ *#.*\n", "", code, flags=re.MULTILINE)
    assert textwrap.indent(BLOCKS["loop"], " " * 16) in without_comments


def test_the_commands_are_run_by_ci_and_use_existing_extras():
    assert "-m pytest" in BLOCKS["test"].splitlines()[1]
    assert "/^```sh test/,/^```/p' README.md | sed -n 3p" in (ROOT / ".ci" / "run").read_text(
        "utf-8"
    )
    extras = re.findall(r"\.\[(\w+)\]|\(extra `(\w+)`\)", README)
    assert {"".join(extra) for extra in extras} <= PROJECT["optional-dependencies"].keys()


SHARED = {f"agentloop.models.{name}" for name in ("completions", "http", "responses", "wire")}
SHARED |= {"agentloop.models.openai_messages", "agentloop.toolkits.environment"}


def test_the_page_of_parts_lists_each_part_with_its_import_path():
    names = re.findall(r"^\| \[`([\w.]+)`\]", PARTS, re.MULTILINE)
    modules = {resolve_name(f"agentloop.{name}").__module__ for name in names}
    packages = ("mixins", "models", "toolkits")
    files = [path for name in packages for path in (PACKAGE / name).glob("[a-z]*.py")]
    parts = {f"agentloop.{path.parent.name}.{path.stem}" for path in files}
    assert modules == parts - SHARED


def test_the_page_of_parts_lists_the_servers_that_have_rules_of_their_own():
    listed = re.search(r"rules of these are built in.*?: (.*?)\. ", PARTS, re.DOTALL)
    names = re.split(r",\s+|\s+and\s+", listed[1].lower())
    for folder in (PACKAGE, ROOT / "tests" / "library"):
        paths = (folder / "models").glob("*.py")
        text = "".join(path.read_text(encoding="utf-8") for path in paths).lower()
        assert [name for name in names if name not in text] == []
    rules = [*vars(completions).values(), NEEDS_THOUGHTS]
    patterns = " ".join(rule for rule in rules if isinstance(rule, str) and "//" in rule)
    hosts = {*re.findall(r"(\w+)\\\.(?=[(\w])", patterns)}
    hosts -= {"api", "moonshot"}  # Moonshot AI's model is listed, Kimi
    assert len(hosts) >= 8
    assert [host for host in hosts if not any(name in host for name in names)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_part_in_a_table_links_to_the_file_that_defines_it(page):
    links = re.findall(r"^\| \[`([\w.]+)`\]\((\S+)\)", PAGES[page], re.MULTILINE)
    assert len(links) >= 8
    for name, target in links:
        module = resolve_name(f"agentloop.{name}").__module__
        assert (page.parent / target).resolve() == ROOT / f"{module.replace('.', '/')}.py"


@pytest.mark.parametrize(
    "fact",
    [
        f"summarizes at {100 * CompactionConfig().threshold_ratio:.0f} % of",
        f"tries a request up to {1 + ChatOpenAI.max_retries} times",
        f"Python {PROJECT['requires-python'].removeprefix('>=')} or newer",
        f"[Lessons](examples/lessons/README.md): {LESSONS}, each",
        f"sessions are in `{SESSION_DIR}`",
        *(f"# {model.key_variables[0]}" for model in (ChatOpenAI, ChatAnthropic)),
    ],
)
def test_numbers_and_names_in_the_readme_match_the_package(fact):
    assert fact in " ".join(f"{README} {PARTS}".split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_existing_targets(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PAGES[page]):
        path = page.parent / (target or page.name)
        assert path.exists(), target
        text = path.read_text(encoding="utf-8") if anchor else ""
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        places = {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings}
        assert not anchor or anchor in places, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_have_at_most_100_columns(page):
    text = re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL)
    long = [line for line in text.splitlines() if len(line) > 100 and line[0] != "|"]
    assert not long


# ---- the page of the command: terminal blocks print the shown output; `...` matches any text

COMMAND = (PACKAGE / "cli" / "README.md").read_text(encoding="utf-8")
KINDS = re.compile(r"^```(console|python append|diff)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECTIONS = [KINDS.findall(text) for text in COMMAND.split("\n## ") if "```console" in text]
assert len(SECTIONS) >= 2, "otherwise no block would be run"
TURNS = (  # the model's replies to the prompts in the README
    [("read", {"path": "notes.txt"})],
    [("write", {"path": "notes.txt", "content": "milk\nbread\n"})],
    "There is bread on the list now.",
    "It is on the list.",
)


def steps(block):
    """Yield each command of a block, with its expected output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *expected = part.splitlines()
        yield command, expected


def matches(expected, printed):
    pattern = "\n".join(expected).strip()
    pattern = re.escape(pattern).replace(r"\.\.\.", "(?s:.*?)")
    return re.fullmatch(pattern, printed.strip())


def edit(path, diff):
    """Apply a diff to a file: each line of the diff begins with a space or a plus sign."""
    old = "".join(line[1:] + "\n" for line in diff.splitlines() if line[0] == " ")
    new = "".join(line[1:] + "\n" for line in diff.splitlines())
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.skipif(os.name != "posix", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("blocks", SECTIONS)
def test_every_command_prints_the_shown_output(blocks, tmp_path):
    folder, programs = tmp_path / "project", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    for program in (Path(sys.executable), Path(sys.executable).with_name("agentloop")):
        link = programs / program.name.rstrip("0123456789.")
        link.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        link.chmod(0o755)
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    own |= {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'examples'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENAI_API_KEY": "k",
    }
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with HeldDouble(*TURNS) as server:
        where = {"cwd": folder, "env": os.environ | own | {"OPENAI_BASE_URL": server.base_url}}
        for kind, text in blocks:
            if kind == "python append":
                with open(folder / "my_agent.py", "a", encoding="utf-8") as file:
                    file.write(text)
            elif kind == "diff":
                edit(folder / "my_agent.py", text)
            for command, expected in steps(text) if kind == "console" else ():
                shell = [shutil.which("bash") or "sh", "-c", command]
                done = subprocess.run(shell, **where, **streams, text=True, timeout=200)
                assert matches(expected, done.stdout), f"$ {command}\n{done.stdout}"
