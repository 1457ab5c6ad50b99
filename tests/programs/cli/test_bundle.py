"""`agentloop bundle`: a bundle is complete, formatted, typed, and passes the tests."""

import ast
import builtins
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from difflib import unified_diff
from pathlib import Path
from symtable import symtable

import pytest

from agentloop import __version__
from agentloop.cli import bundle as bundling
from agentloop.cli.bundle import (
    HEADER,
    IMPORTED,
    bundle,
    choose,
    read_package,
)
from agentloop.cli.main import main
from agentloop.common.tokens import count_tokens
from tests.bundled.plugin import is_of_a_bundle
from tests.properties import given, settings, st

from .command import ROOT

PACKAGE = read_package()
PARTS = [path for path in PACKAGE if "/" in path or path == "agent.py"]
CORE = [part.path for part in choose(PACKAGE)]
slow = pytest.mark.slow
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
ALONE = [pytest.param([path], id=path, marks=slow) for path in ["loop", *PARTS]]
SAMPLE = ALONE[::6]  # of what takes ten seconds per part: the parts together cover the others
TOGETHER = [pytest.param(["agent", "openai"], id="agent-openai"), pytest.param(PARTS, id="all")]


def write(folder, chosen):
    """Write a bundle of the chosen parts into the folder, and return its path."""
    path = folder / "my_agent.py"
    path.write_text(bundle(choose(PACKAGE, chosen)), encoding="utf-8", newline="\n")
    return path


def execute(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, **options)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    return done.stdout


# ---- the package


@pytest.mark.parametrize("part", PACKAGE.values(), ids=PACKAGE)
def test_a_part_names_its_requirements_and_its_text_matches_its_file(part):
    nodes = [*ast.walk(ast.parse(part.source))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    assert all(n.module for n in imports), "a bundle has no modules: import the names"
    assert not [n for n in imports if n.level for alias in n.names if alias.asname]
    others = {n.module for n in imports if not n.level}
    others |= {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    assert {*re.findall(IMPORTED, part.source)} == {name.partition(".")[0] for name in others}
    left = ast.walk(ast.parse(part.text))
    assert not [n for n in left if isinstance(n, ast.ImportFrom) and n.level]
    assert {*part.text.split("\n")} <= {*part.source.split("\n")}
    assert not [n for n in ast.parse(part.text).body if isinstance(n, ast.Import | ast.ImportFrom)]
    copy_with = re.search(r"\n\nCopy with: (.*?)\n(?:\n|\"\"\"\n)", part.source, re.DOTALL)[1]
    named = re.findall(r"[\w/]+\.py", copy_with)
    assert {required.path for required in choose(PACKAGE, named)} >= {
        *part.needs,
        *part.optional.values(),
    }
    assert named or copy_with in ("the core.", "nothing else.")


def test_every_top_level_name_has_one_meaning_in_the_whole_package():
    meanings = defaultdict(set, {name: {"a builtin"} for name in dir(builtins)})
    for part in PACKAGE.values():
        for node in ast.parse(part.text).body:
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                name = alias.asname or alias.name.split(".")[0]
                meanings[name].add(f"{getattr(node, 'module', '')}: {alias.name}")
        for symbol in symtable(part.text, part.path, "exec").get_symbols():
            if symbol.is_assigned() and not symbol.is_imported():
                meanings[symbol.get_name()].add(part.path)
    del meanings["logger"]
    assert not {n: places for n, places in meanings.items() if len(places) > 1}, "rename one"


def test_the_header_contains_the_licence_of_the_project():
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8").rstrip()
    assert licence in re.sub("(?m)^# ?", "", HEADER)


# ---- contents of a bundle


IMPORT = """
import sys
path, *packages = sys.argv[1:]
allowed = {"my_agent", "pydantic", *sys.stdlib_module_names, *packages}
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
def test_a_bundle_is_formatted_and_requires_only_pydantic(tmp_path, chosen):
    pytest.importorskip("ruff")
    path = write(tmp_path, chosen)
    for check in (["format", "--check"], ["check"]):
        config = ["--no-cache", "--config", ROOT / "pyproject.toml"]
        execute(sys.executable, "-m", "ruff", *check, *config, path)
    with_pydantic = "pydantic_core annotated_types typing_extensions typing_inspection"
    if "mixins/tracing.py" in chosen:
        with_pydantic += " opentelemetry"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    out = execute(
        sys.executable, "-c", IMPORT, tmp_path, *with_pydantic.split(), cwd=tmp_path, env=clean
    )
    assert out == "hello\n"


MISTAKE = """
from my_agent import *
try:
    Agent(llm=ScriptedModel(), max_turns=3, tols=[])
except TypeError as error:
    print(error)
"""


def test_a_bundle_answers_mistyped_names(tmp_path):
    """The names of other libraries are in a file of the package, which a bundle leaves out."""
    (tmp_path / "mistake.py").write_text(MISTAKE)
    write(tmp_path, ["agent", "scripted"])
    output = execute(sys.executable, tmp_path / "mistake.py")
    assert "unknown setting tols: did you mean tools?" in output
    assert "unknown setting max_turns: " in output


HISTORY = """
import my_agent
agent = my_agent.Agent(llm=my_agent.ScriptedModel())
try:
    agent.load_history([{"role": "user", "content": "Hello."}])
except ImportError as error:
    print(error)
print(agent.messages)
"""


def test_an_omitted_optional_part_raises_an_error_with_the_command_that_adds_the_part(tmp_path):
    (tmp_path / "history.py").write_text(HISTORY)
    parts = ["agent", "scripted"]
    file = write(tmp_path, parts)
    assert "def from_openai(" in file.read_text(encoding="utf-8")
    output = execute(sys.executable, tmp_path / "history.py")
    [part] = re.search(r"agentloop bundle (\S+) --upgrade", output).groups()
    assert output.endswith("\n()\n")
    write(tmp_path, [*parts, part])
    output = execute(sys.executable, tmp_path / "history.py")
    assert re.fullmatch(r"\(UserMessage\(.*'Hello\.'.*\),\)\n", output)


@pytest.mark.parametrize("name", ["fence", "loop_detection"])
def test_a_recipe_works_with_imports_from_a_bundle(tmp_path, name):
    write(tmp_path, ["agent", "scripted"])
    source = (ROOT / "examples" / "recipes" / f"{name}.py").read_text(encoding="utf-8")
    recipe = tmp_path / "recipe.py"
    recipe.write_text(re.sub(r"from agentloop[\w.]* import", "from my_agent import", source))
    original = execute(sys.executable, ROOT / "examples" / "recipes" / f"{name}.py")
    assert execute(sys.executable, recipe) == original


@slow
@pytest.mark.parametrize("chosen", [*TOGETHER, *SAMPLE])
def test_a_bundle_passes_mypy(tmp_path, tmp_path_factory, chosen):
    pytest.importorskip("mypy")
    path, cache = write(tmp_path, chosen), tmp_path_factory.getbasetemp() / "mypy"
    execute(sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, path)


def mirrored(*paths):
    """Return the test files corresponding to the parts."""
    found = []
    for path in map(Path, paths):
        folder = Path("tests", "core" if path.parent == Path() else "library")
        found.append((folder / path).with_name(f"test_{path.name}"))
    return [file.as_posix() for file in found if (ROOT / file).exists()] or [LOOP]


ALL_TESTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py"))
LOOP = "tests/core/test_loop.py"
AGENT = ["mixins/compaction.py", "mixins/done.py", "mixins/ephemeral.py", "models/openai.py"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("chosen", "tests"),
    [
        pytest.param(["agent", "openai"], mirrored(*AGENT), id="agent-openai", marks=slow),
        pytest.param(PARTS, mirrored("loop.py"), id="all-some"),
        pytest.param(PARTS, [*filter(is_of_a_bundle, ALL_TESTS)][::3], id="all", marks=slow),
        pytest.param(["loop"], mirrored(*CORE), id="core", marks=slow),
        *[
            pytest.param([path], [*mirrored(path), LOOP], id=path, marks=slow)
            for path in PARTS[1::6]
        ],
    ],
)
def test_a_bundle_passes_the_tests_of_its_parts(tmp_path, chosen, tests):
    path = write(tmp_path, chosen)
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.bundled.plugin", f"--bundle={path}"]
    options += [] if chosen == ["loop"] else ["--one-case"]
    env = {**os.environ, "AGENTLOOP_SLOW": ""}
    out = execute(sys.executable, "-m", "pytest", *options, *tests, cwd=ROOT, env=env)
    assert re.search(r"^\d+ passed", out, re.M)


@given(st.sets(st.sampled_from([*PACKAGE]), max_size=4))
@settings(max_examples=settings.default.max_examples // 4)  # every example writes a complete bundle
def test_any_selection_is_complete_and_every_part_follows_its_requirements(chosen):
    parts = choose(PACKAGE, chosen)
    paths = [part.path for part in parts]
    assert {*chosen, *CORE} <= {*paths}
    assert len(paths) == len({*paths})
    for at, part in enumerate(parts):
        assert {*part.needs} <= {*paths[:at]}
    ast.parse(bundle(parts))


# ---- a small package that shows the changes to a file

HEAD = '"""A file.\n\nCopy with: nothing else.\n"""\n\n'
LOOP = """from __future__ import annotations

import re
from typing import Any

from .data import (
    size,
)

LIMIT = 3  # of turns


class Loop:
    def price(self, é: int) -> int:
        from .data import ZERO

        return size(é) + ZERO
"""
DATA = "ZERO = 0\n\n\ndef size(n: int) -> int:\n    return n\n"
EXTRA = (
    "import httpx\n\nfrom .loop import Loop\n\n\nclass Extra(Loop):\n    client = httpx.Client\n"
)
SOURCES = {"data": DATA, "loop": LOOP, "extra": EXTRA}


def small(folder, **files):
    """Return a package of the files."""
    for name, text in (SOURCES | files).items():
        (folder / f"{name}.py").write_text(HEAD + text, encoding="utf-8")
    return read_package(folder)


def test_only_imports_and_the_copy_note_of_a_file_are_removed(tmp_path):
    text = bundle(choose(small(tmp_path), ["extra"]))
    header, *pieces = re.split(r"\n\n\n# ==== (\S+) ====\n", text)
    texts = dict(zip(pieces[::2], pieces[1::2], strict=True))
    assert [*texts] == ["data.py", "loop.py", "extra.py", "yours"]
    assert "Requires Python 3.11, httpx." in header
    imports = (
        "from __future__ import annotations",
        "import httpx\nimport re\nfrom typing import Any",
    )
    assert header.endswith("\n\n".join(["\n# fmt: off", *imports]))
    whole = f"{HEAD}{LOOP}".splitlines()
    changes = unified_diff(whole, texts["loop.py"].splitlines(), n=0, lineterm="")
    assert [line for line in changes if line[1:] and line[:2] not in ("--", "++", "@@")] == [
        "-Copy with: nothing else.",
        "-from __future__ import annotations",
        "-import re",
        "-from typing import Any",
        "-from .data import (",
        "-    size,",
        "-)",
        "-        from .data import ZERO",
    ]


def command(*arguments):
    return main(["bundle", *map(str, arguments)])


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return a bundle of the small package, which replaces the real package in `command`."""
    (tmp_path / "package").mkdir()
    small(tmp_path / "package")
    monkeypatch.setattr(bundling, "read_package", lambda: read_package(tmp_path / "package"))
    assert command("extra", "-o", tmp_path / "my_agent.py") == 0
    return tmp_path / "my_agent.py"


def change(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def upgraded(file, capsys, *parts):
    """Return the exit status and the output of an upgrade."""
    capsys.readouterr()
    status = command(*parts, "--upgrade", file)
    return status, capsys.readouterr().out


def newer(file, **changes):
    """Change parts of the small package upstream, each as (old, new)."""
    sources = {name: SOURCES[name].replace(*change) for name, change in changes.items()}
    small(file.parent / "package", **sources)


ADD = ("return size(é) + ZERO", "return ZERO + size(é)")


@needs_git
def test_an_upgrade_merges_upstream_changes_with_local_changes(file, capsys):
    file.write_text("#!/usr/bin/python\n" + file.read_text() + "\nprint(Extra)  # \x1b[31m\n")
    change(file, "LIMIT = 3", "LIMIT = 30")
    newer(file, loop=ADD, data=("return n", "return 2 * n"))
    assert upgraded(file, capsys) == (0, f"{file} is up to date.\n")
    text = file.read_text()
    assert text.startswith("#!/usr/bin/python\n")
    assert text.endswith("print(Extra)  # \x1b[31m\n")
    for line in ("LIMIT = 30", "return ZERO + size(é)", "return 2 * n"):
        assert line in text
    assert upgraded(file, capsys) == (0, f"{file} is up to date.\n")
    assert file.read_text() == text


@needs_git
def test_a_conflict_with_a_local_change_is_marked_and_resolved_only_once(file, capsys):
    change(file, "return size(é) + ZERO", "return 2 * size(é)")
    newer(file, loop=ADD)
    status, output = upgraded(file, capsys)
    assert (status, "<<<<<<<" in output) == (1, True)
    mine, theirs = "        return 2 * size(é)\n", "        return ZERO + size(é)\n"
    both = f"<<<<<<< {file}\n{mine}=======\n{theirs}>>>>>>> agentloop {__version__}\n"
    change(file, both, mine)
    text = file.read_text()
    assert upgraded(file, capsys)[0] == 0
    assert file.read_text() == text


@needs_git
def test_an_upgrade_refuses_a_bundle_with_conflicts_and_a_bundle_without_its_copy(file, capsys):
    change(file, "return size(é) + ZERO", "return 2 * size(é)")
    newer(file, loop=ADD)
    assert command("--upgrade", file) == 1
    text = file.read_text()
    assert command("--upgrade", file) == 2
    assert "<<<<<<<" in capsys.readouterr().err
    change(file, "<<<<<<< ", "")
    file.with_suffix(".shipped").unlink()
    assert command("--upgrade", file) == 2
    assert "my_agent.shipped is missing" in capsys.readouterr().err
    assert file.read_text() == text.replace("<<<<<<< ", "")


@needs_git
def test_an_upgrade_adds_a_requested_part(file, capsys):
    small(file.parent / "package", more="PI = 3.14\n")
    status, output = upgraded(file, capsys, "more")
    assert (status, output) == (0, f"{file} is up to date.\n")
    assert "PI = 3.14" in file.read_text()


@needs_git
def test_an_upgrade_adds_new_requirements_and_omits_removed_parts(file):
    folder = file.parent / "package"
    loop = LOOP.replace("from .data import (", "from .more import PI\nfrom .data import (")
    package = small(folder, more="PI = 3.14\n", loop=loop.replace("LIMIT = 3", "LIMIT = PI"))
    assert command("--upgrade", file) == 0
    assert file.read_text() == bundle(choose(package, ["extra"]))
    (folder / "extra.py").rename(folder / "other.py")
    assert command("--upgrade", file) == 0
    assert "class Extra" not in file.read_text()


def test_list_shows_the_description_and_the_tokens_of_every_part(capsys):
    assert command("--list") == 0
    output = capsys.readouterr().out
    for path, part in PACKAGE.items():
        row = rf"^{path} +{count_tokens(part.text):,} tokens  {re.escape(part.sentence)}$"
        assert re.search(row, output, re.M)


def test_without_an_output_file_the_size_of_the_bundle_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("done", "openai") == 0
    output = capsys.readouterr().out
    assert not [*tmp_path.iterdir()]
    assert command("done", "openai", "-o", "my_agent.py") == 0
    assert capsys.readouterr().out == output.replace("The bundle has", "my_agent.py has")
    text = Path("my_agent.py").read_text(encoding="utf-8")
    lines, tokens = text.count("\n"), count_tokens(text)
    assert f" parts, {lines:,} lines, {tokens:,} tokens, and requires httpx, pydantic" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "my_agent.py",
        "my_agent.shipped",
    ]


def test_the_output_lists_the_lines_and_the_importers_of_every_part(capsys):
    assert command("agent") == 0
    rows = [line.split(None, 2) for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows.pop() == ["models/openai_messages.py", "optional,", "for from_openai"]
    assert rows.pop() == ["common/review.py", "optional,", "for check_decision"]
    parts = {part.path: part for part in choose(PACKAGE, ["agent"])}
    core = [parts[path].text.count("\n") + 1 for path in CORE]
    assert rows[0] == [str(sum(core)), "the", f"core: {len(core)} parts"]
    table = {path: (int(lines), *others) for lines, path, *others in rows[1:]}
    assert table.keys() == parts.keys() - {*CORE}
    for path, (lines, *others) in table.items():
        assert lines == parts[path].text.count("\n") + 1
        importers = [part.path for part in parts.values() if path in part.needs]
        assert others == ([", ".join(importers)] if importers else [])
    assert table["mixins/cost_aware_pruning.py"][1] == "agent.py"
    assert len(table["agent.py"]) == 1
