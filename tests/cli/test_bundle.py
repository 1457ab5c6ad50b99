"""`agentloop bundle`: what it writes is whole, formatted, typed, and passes the tests."""

import ast
import builtins
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from symtable import symtable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.cli import bundle as bundling
from agentloop.cli.bundle import (
    BOTH,
    CHANGED,
    HEADER,
    IMPORTED,
    NEWER,
    SHIPPED,
    bundle,
    check,
    choose,
    joined,
    read_package,
    upgrade,
)
from agentloop.cli.main import main
from tests.bundled.plugin import is_of_a_bundle
from tests.test_budgets import tokens as tokens_of

ROOT = Path(__file__).parent.parent.parent
PACKAGE = read_package()
PARTS = [path for path in PACKAGE if "/" in path or path == "agent.py"]
CORE = [part.path for part in choose(PACKAGE)]
slow = pytest.mark.slow
ALONE = [pytest.param([path], id=path, marks=slow) for path in ["loop", *PARTS]]
TOGETHER = [pytest.param(["agent", "openai"], id="agent-openai"), pytest.param(PARTS, id="all")]


def write(folder, chosen):
    """A bundle of these parts, in a folder of its own."""
    path = folder / "my_agent.py"
    path.write_text(joined(bundle(choose(PACKAGE, chosen))), encoding="utf-8", newline="\n")
    return path


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, **options)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    return done.stdout


# ---- the package


@pytest.mark.parametrize("part", PACKAGE.values(), ids=PACKAGE)
def test_a_part_says_what_it_needs_and_its_text_is_its_file(part):
    imports = [n for n in ast.walk(ast.parse(part.source)) if isinstance(n, ast.ImportFrom)]
    assert all(n.module for n in imports), "in a bundle, a module has no name: import from it"
    assert not [n for n in imports if n.level for each in n.names if each.asname]
    left = ast.walk(ast.parse(part.text))
    assert not [n for n in left if isinstance(n, ast.ImportFrom) and n.level]
    assert {*part.text.split("\n")} <= {*part.source.split("\n")}
    others = {n.module.split(".")[0] for n in imports if not n.level}
    plain = [n for n in ast.walk(ast.parse(part.source)) if isinstance(n, ast.Import)]
    others |= {each.name.split(".")[0] for n in plain for each in n.names}
    assert {*re.findall(IMPORTED, part.source)} == others

    def closure(paths):
        found, todo = set(), [*paths]
        while todo:
            if (path := todo.pop()) not in found:
                found.add(path)
                todo += PACKAGE[path].needs
        return found

    named = {*re.findall(r"[\w/]+\.py", part.copy_with)}
    if "the core" in part.copy_with:
        named |= closure(["loop.py"])
    assert closure(named) >= {*part.needs} - closure(["loop.py"])
    assert closure(named) <= closure([*part.needs, "loop.py", *named])
    assert named or part.copy_with == "nothing else."


def test_every_name_at_the_top_of_a_file_has_one_meaning_in_the_whole_package():
    meanings = defaultdict(set)
    for part in PACKAGE.values():
        for node in ast.parse(part.text).body:
            names = (
                getattr(node, "names", []) if isinstance(node, ast.Import | ast.ImportFrom) else []
            )
            for each in names:
                meanings[each.asname or each.name.split(".")[0]].add(
                    f"{getattr(node, 'module', '')}: {each.name}"
                )
        for symbol in symtable(part.text, part.path, "exec").get_symbols():
            if symbol.is_assigned() and not symbol.is_imported():
                meanings[symbol.get_name()].add(part.path)
    for name in meanings.keys() & {*dir(builtins)}:
        meanings[name].add("a builtin")
    twice = {name: found for name, found in meanings.items() if len(found) > 1}
    del twice["logger"]
    assert not twice, "rename one of each"


def test_the_licence_is_that_of_the_project():
    assert HEADER.endswith((ROOT / "LICENSE").read_text(encoding="utf-8").rstrip())


# ---- what is written


@pytest.mark.parametrize("chosen", [*TOGETHER, *ALONE])
def test_a_bundle_is_formatted(tmp_path, chosen):
    path = write(tmp_path, chosen)
    config = ["--no-cache", "--config", ROOT / "pyproject.toml"]
    run(sys.executable, "-m", "ruff", "format", "--check", *config, path)
    run(sys.executable, "-m", "ruff", "check", *config, path)


@slow
@pytest.mark.parametrize("chosen", [*TOGETHER, *ALONE])
def test_a_bundle_passes_mypy(tmp_path, tmp_path_factory, chosen):
    path, cache = write(tmp_path, chosen), tmp_path_factory.getbasetemp() / "mypy"
    run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, path)


IMPORT = """
import sys
path, *packages = sys.argv[1:]
allowed = {"my_agent", *sys.stdlib_module_names, *packages}
class Only:
    def find_spec(name, path=None, target=None):
        if (top := name.partition(".")[0]) not in allowed and top[0] != "_":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Only)
sys.path.insert(0, path)
import my_agent
class Echo:
    model = "echo"
    async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
        return my_agent.AssistantMessage(messages[-1].text)
print(my_agent.Loop(llm=Echo()).run_sync("hello"))
"""


@pytest.mark.parametrize("chosen", [*TOGETHER, *ALONE])
def test_a_bundle_works_in_an_empty_folder_with_pydantic_alone(tmp_path, chosen):
    write(tmp_path, chosen)
    with_pydantic = ["annotated_types", "typing_extensions", "typing_inspection"]
    packages = ["pydantic", "pydantic_core", *with_pydantic]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    out = run(sys.executable, "-c", IMPORT, tmp_path, *packages, cwd=tmp_path, env=clean)
    assert out == "hello\n"


def mirrored(paths):
    """The files of tests that mirror these parts."""
    files = [Path(path).parent / f"test_{Path(path).name}" for path in paths]
    return [f"tests/{file.as_posix()}" for file in files if (ROOT / "tests" / file).exists()]


ALL_TESTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py"))
AGENT = ["mixins/compaction.py", "mixins/done.py", "mixins/ephemeral.py", "models/openai.py"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("chosen", "tests"),
    [
        pytest.param(["agent", "openai"], mirrored(AGENT), id="agent-openai", marks=slow),
        pytest.param(PARTS, mirrored(["loop.py"]), id="all-some"),
        pytest.param(PARTS, [*filter(is_of_a_bundle, ALL_TESTS)], id="all", marks=slow),
        pytest.param(["loop"], mirrored(CORE), id="core", marks=slow),
        *[pytest.param([path], mirrored([path]), id=path, marks=slow) for path in PARTS],
    ],
)
def test_a_bundle_passes_the_tests_of_its_parts(tmp_path, chosen, tests):
    tests = tests or ["tests/test_loop.py"]  # of a part without tests of its own
    path = write(tmp_path, chosen)
    search = os.pathsep.join([str(ROOT / "tests" / "bundled"), str(ROOT)])
    env = {**os.environ, "AGENTLOOP_BUNDLE": str(path), "PYTHONPATH": search, "AGENTLOOP_SLOW": ""}
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.bundled.plugin"]
    out = run(sys.executable, "-m", "pytest", *options, *tests, cwd=ROOT, env=env)
    assert re.search(r"^\d+ passed", out, re.M)


@given(st.sets(st.sampled_from([*PACKAGE]), max_size=4))
@settings(max_examples=settings.default.max_examples // 4)  # each writes a whole bundle
def test_any_choice_is_whole_and_each_part_stands_behind_those_that_it_needs(chosen):
    parts = choose(PACKAGE, chosen)
    paths = [part.path for part in parts]
    assert {*chosen, *CORE} <= {*paths}
    assert len(paths) == len({*paths})
    for at, part in enumerate(parts):
        assert {*part.needs} <= {*paths[:at]}
    ast.parse(joined(bundle(parts)))


# ---- a small package, to see how a file is taken apart

LOOP = '''"""The loop.

Copy with: data.py.

Read it first.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .data import (
    Record,
    size,
)

if TYPE_CHECKING:
    from .data import ZERO

logger = logging.getLogger("x")

LIMIT = 3  # of turns


class Loop:
    """Keeps a log."""

    log: list[Record]

    def price(self, é: int) -> int:
        from .data import ZERO

        return size(é) + ZERO
'''
DATA = '''"""The data.

Copy with: nothing else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

logger = logging.getLogger("x")
ZERO = 0


@dataclass
class Record:
    n: int = field(default=ZERO)


def size(n: int) -> int:
    return n
'''
EXTRA = '''"""More.

Copy with: the core.
"""

from __future__ import annotations

from .data import Record
from .loop import Loop


class Extra(Loop):
    def old(self) -> Record:
        import httpx

        return Record(httpx.codes.OK)
'''


def small(folder, **files):
    """A package of these files, read."""
    files = {"loop": LOOP, "data": DATA, "extra": EXTRA} | files
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return read_package(folder)


def test_a_file_is_taken_apart_and_the_rest_of_it_stays_as_it_was(tmp_path):
    package = small(tmp_path)
    texts = {name: each.text for name, each in bundle(choose(package, ["extra"])).items()}
    assert [*texts] == ["header", "data.py", "loop.py", "extra.py", "yours"]
    assert "It needs Python 3.11, httpx." in texts["header"]
    assert texts["header"].endswith("\nfrom __future__ import annotations")
    assert texts["loop.py"] == (
        '"""The loop.\n\nCopy with: data.py.\n\nRead it first.\n"""\n\n\n'
        "import logging\nfrom typing import TYPE_CHECKING\n\n\n"
        'logger = logging.getLogger("x")\n\n'
        'LIMIT = 3  # of turns\n\n\nclass Loop:\n    """Keeps a log."""\n\n'
        "    log: list[Record]\n\n"
        "    def price(self, é: int) -> int:\n        return size(é) + ZERO"
    )


# ---- checks and upgrades


@pytest.fixture
def file(tmp_path):
    """A bundle of the small package; `tmp_path/"package"` is where that is."""
    (tmp_path / "package").mkdir()
    path = tmp_path / "my_agent.py"
    text = joined(bundle(choose(small(tmp_path / "package"), ["extra"])))
    path.write_text(text, encoding="utf-8")
    return path


def state_of(file, package):
    said, _ = check(file, package)
    return dict(re.split("  +", line, maxsplit=1) for line in said.splitlines())


def change(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


@given(touched=st.sets(st.sampled_from("dle")), newer=st.sets(st.sampled_from("dle")))
def test_an_upgrade_keeps_every_touched_part_and_no_other(tmp_path_factory, touched, newer):
    folder = tmp_path_factory.mktemp("small")
    sources = {"data": DATA, "loop": LOOP, "extra": EXTRA}
    ends = {"data": "return n", "loop": "size(é) + ZERO", "extra": "codes.OK)"}
    (file := folder / "_x.py").write_text(
        f"#!/usr/bin/python\n{joined(bundle(choose(small(folder), ['extra'])))}\n\nprint(Extra)\n"
    )
    for name in sources:
        if name[0] in touched:
            change(file, f"{ends[name]}\n", f"{ends[name]}\n# mine: {name}\n")
    changed = {k: v + f"# newer: {k}\n" for k, v in sources.items() if k[0] in newer}
    package, before = small(folder, **changed), file.read_text()
    for name, what in state_of(file, package).items():
        words = [CHANGED] * (name[0] in touched) + [NEWER] * (name[0] in newer)
        if name not in ("header", "yours"):
            assert what == (", and ".join(words) or SHIPPED)
    said, status = upgrade(file, package)
    assert status == bool(touched & newer)
    for name in sources:
        assert (f"# mine: {name}" in file.read_text()) == (name[0] in touched)
        assert (f"# newer: {name}" in file.read_text()) == (name[0] in newer and not status)
        assert (f"{name}.py: {NEWER}" in said) == (name[0] in newer and not status)
        assert (f"+# newer: {name}" in said.splitlines()) == (name[0] in touched & newer)
    if status:
        assert file.read_text() == before
    elif not touched:
        new = joined(bundle(choose(package, ["extra"])))
        assert file.read_text().split() == f"#!/usr/bin/python\n{new}print(Extra)\n".split()
    if status:  # the newer text was taken over by hand
        for name, hash in re.findall(r"(\w+)\.py: .*\nput (\w+) behind sha256", said):
            text = re.sub(rf"(==== {name}\.py ==== sha256) \w+", rf"\1 {hash}", file.read_text())
            file.write_text(text)
        assert upgrade(file, package)[1] == 0
        found = state_of(file, package)
        assert all(found[f"{name}.py"] in (SHIPPED, CHANGED) for name in sources)


def test_a_part_that_is_needed_now_is_added_and_one_that_is_gone_is_left_out(file):
    folder = file.parent / "package"
    more = '"""Less."""\n\nfrom __future__ import annotations\n\nimport math\n\nPI = math.pi\n'
    loop = LOOP.replace("from .data import (", "from .more import PI\nfrom .data import (")
    package = small(folder, more=more, loop=loop.replace("LIMIT = 3", "LIMIT = PI"))
    assert state_of(file, package)["more.py"] == "newer upstream, and missing here"
    upgrade(file, package)
    assert file.read_text() == joined(bundle(choose(package, ["extra"])))
    (folder / "extra.py").rename(folder / "other.py")
    package = read_package(folder)
    assert state_of(file, package)["extra.py"] == "gone upstream"
    assert "extra.py: gone upstream" in upgrade(file, package)[0]
    assert "class Extra" not in file.read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("==== loop.py ====", "==== \x1b]0;owned\x07 ===== x"),
        ("==== loop.py ==== sha256", "==== loop.py ==== md5"),
        ("==== loop.py ====", "==== data.py ===="),
        ("==== header ====", "==== heading ===="),
    ],
)
@pytest.mark.parametrize("option", ["--check", "--upgrade"])
def test_what_is_no_bundle_stays_as_it_is(file, capsys, option, old, new):
    change(file, old, new)
    before = file.read_bytes()
    assert command(option, file) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "is no bundle, or a marker line in it was changed" in err
    assert "\x1b" not in err
    assert file.read_bytes() == before


# ---- the command


def command(*arguments):
    return main(["bundle", *map(str, arguments)])


def test_a_new_file_is_checked_and_upgraded(tmp_path, capsys, monkeypatch):
    file = tmp_path / "my_agent.py"
    assert command("done", "-o", file) == 0
    assert capsys.readouterr().out.startswith(f"{file} has ")
    assert command("--check", file) == 0
    assert re.search(r"^mixins/done.py +as shipped$", capsys.readouterr().out, re.M)
    assert command("--upgrade", file) == 0
    assert capsys.readouterr().out == "There is nothing newer.\n"
    assert command("done", "-o", file) == 2
    assert "--upgrade renews a file" in capsys.readouterr().err
    change(file, "class DoneTool", "# \x1b[31m\nclass DoneTool")
    assert command("--check", file) == 1
    assert re.search(r"^mixins/done.py +changed by you$", capsys.readouterr().out, re.M)
    newer = {**PACKAGE}
    newer["mixins/done.py"] = bundling.Part(
        "mixins/done.py", PACKAGE["mixins/done.py"].source + "NEW = 1\n"
    )
    monkeypatch.setattr(bundling, "read_package", lambda: newer)
    assert command("--upgrade", file) == 1
    out = capsys.readouterr().out
    assert f"mixins/done.py: {BOTH}" in out
    assert "\n+NEW = 1" in out
    assert "\\x1b[31m" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["compacton", "-o", "x.py"], "There is no part 'compacton': see --list."),
        (["-o", "x.py"], "Name the parts, and a file"),
        (["done"], "Name the parts, and a file"),
        (["--check", "x.py"], "No such file or directory: x.py"),
    ],
)
def test_wrong_usage_writes_nothing(tmp_path, monkeypatch, capsys, arguments, why):
    monkeypatch.chdir(tmp_path)
    assert command(*arguments) == 2
    assert why in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_list_says_what_each_part_is_weighs_and_needs(capsys):
    assert command("--list") == 0
    out = capsys.readouterr().out
    rows = re.findall(r"^(\S+) +([\d,]+) tokens  (.*)\n +(.*)$", out, re.M)
    assert [path for path, *_ in rows] == [*PACKAGE]
    for path, tokens, sentence, needs in rows:
        exact = tokens_of(ROOT / "agentloop" / path)
        assert abs(int(tokens.replace(",", "")) - exact) <= 2 + exact // 100
        assert sentence == PACKAGE[path].sentence
        assert needs == ("always there" if path in CORE else f"needs {PACKAGE[path].copy_with}")


def test_a_folder_gets_the_files_as_they_are(tmp_path, capsys):
    folder = tmp_path / "my_agent"
    assert command("agent", "openai", "-o", folder) == 0
    assert (folder / "__init__.py").read_text(encoding="utf-8").count("MIT License") == 1
    for path in folder.rglob("[!_]*.py"):
        name = path.relative_to(folder).as_posix()
        assert path.read_text(encoding="utf-8") == PACKAGE[name].source
    code = (
        "from my_agent.agent import Agent; import my_agent.models.openai; print(Agent.__module__)"
    )
    assert run(sys.executable, "-c", code, cwd=tmp_path) == "my_agent.agent\n"
    assert command("done", "-o", folder) == 2
