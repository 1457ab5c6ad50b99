"""`agentloop bundle`: what it writes is whole, formatted, typed, and passes the tests."""

import ast
import builtins
import os
import re
import stat
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from symtable import symtable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.cli import bundle as bundling
from agentloop.cli.bundle import LICENSE, bundle, joined
from agentloop.cli.main import main
from agentloop.cli.parts import Refused, choose, in_order, read_package
from agentloop.cli.upgrade import CHANGED, NEWER, SHIPPED, sections, states, upgraded
from tests.bundled.plugin import is_of_a_bundle

ROOT = Path(__file__).parent.parent.parent
PACKAGE = read_package()
PARTS = [path for path in PACKAGE if "/" in path or path == "agent.py"]
CORE = [part.path for part in in_order(PACKAGE, [])]
slow = pytest.mark.slow
ALONE = [pytest.param([path], id=path, marks=slow) for path in ["core", *PARTS]]
TOGETHER = [pytest.param(["agent", "openai"], id="agent-openai"), pytest.param(PARTS, id="all")]


def write(folder, chosen):
    """A bundle of these parts, in a folder of its own."""
    path = folder / "my_agent.py"
    text = joined(bundle(in_order(PACKAGE, choose(PACKAGE, chosen)), "bundle"))
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, **options)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
    return done.stdout


# ---- the package


def test_every_name_at_the_top_of_a_file_has_one_meaning_in_the_whole_package():
    meanings = defaultdict(set)
    for part in PACKAGE.values():
        for new in part.imports:
            meanings[new.name or new.module.split(".")[0]].add(f"{new.module}: {new.name}")
        for line in part.shared:
            meanings[line.split()[0]].add(line)
        for symbol in symtable(part.text, part.path, "exec").get_symbols():
            if symbol.is_assigned():
                meanings[symbol.get_name()].add(part.path)
    for name in meanings.keys() & {*dir(builtins)}:
        meanings[name].add("a builtin")
    twice = {name: found for name, found in meanings.items() if len(found) > 1}
    assert not twice, "rename one of each"


@pytest.mark.parametrize("part", PACKAGE.values(), ids=PACKAGE)
def test_what_a_file_says_to_copy_with_it_is_what_it_imports(part):
    def closure(paths):
        found, todo = set(), [*paths]
        while todo:
            if (path := todo.pop()) not in found:
                found.add(path)
                todo += PACKAGE[path].before
        return found

    named = {*re.findall(r"[\w/]+\.py", part.copy_with)}
    if "the core" in part.copy_with:
        named |= closure(["loop.py"])
    assert closure(named) == closure(part.before)
    assert named or part.copy_with == "nothing else."


def test_the_licence_is_that_of_the_project():
    assert (ROOT / "LICENSE").read_text(encoding="utf-8") == LICENSE


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
        pytest.param(["core"], mirrored(CORE), id="core", marks=slow),
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
def test_any_choice_is_whole_and_each_part_stands_behind_those_that_it_is_made_of(chosen):
    parts = in_order(PACKAGE, chosen)
    paths = [part.path for part in parts]
    assert {*chosen, *CORE} <= {*paths}
    assert len(paths) == len({*paths})
    for at, part in enumerate(parts):
        assert {*part.before} <= {*paths[:at]}
    text = joined(bundle(parts, "bundle"))
    ast.parse(text)
    _, found = sections(text)
    assert {*states(PACKAGE, found).values()} == {SHIPPED}
    assert upgraded(PACKAGE, text) == (text, [])


# ---- a small package, to see how a file is taken apart

LOOP = '''"""The loop.

Copy with: data.py.

Read it first.
"""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import TYPE_CHECKING

from . import data
from .data import Record

if TYPE_CHECKING:
    from .extra import Extra

logger = logging.getLogger("x")

LIMIT = 3  # of turns


class Loop:
    """Keeps a log."""

    log: list[Record]

    def price(self, é: Extra) -> Decimal:
        return é.price, data.Record(data.Record(0).n)  # of a module
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

from .data import Record, size
from .loop import Loop


class Extra(Loop):
    def old(self) -> Record:
        import httpx

        return Record(size(httpx.codes.OK))
'''


def small(folder, **files):
    """A package of these files, read."""
    files = {"loop": LOOP, "data": DATA, "extra": EXTRA} | files
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return read_package(folder)


def test_a_file_is_taken_apart_and_the_rest_of_it_stays_as_it_was(tmp_path):
    found = bundle(in_order(small(tmp_path), ["extra.py"]), "bundle")
    texts = {section.name: section.text for section in found}
    assert [*texts] == ["header", "imports", "data.py", "loop.py", "extra.py", "yours"]
    assert texts["imports"].splitlines() == [
        "from __future__ import annotations",
        "",
        "import logging",
        "from dataclasses import dataclass, field",
        "from decimal import Decimal",
        "",
        'logger = logging.getLogger("x")',
    ]
    assert texts["data.py"].startswith('"""The data."""\n\nZERO = 0\n\n\n@dataclass\n')
    assert texts["loop.py"].startswith(
        '"""The loop.\n\nRead it first.\n"""\n\nLIMIT = 3  # of turns\n\n\nclass Loop:\n'
    )
    assert texts["loop.py"].endswith("        return é.price, Record(Record(0).n)  # of a module")
    assert texts["extra.py"] == (
        '"""More."""\n\n\nclass Extra(Loop):\n'
        "    def old(self) -> Record:\n        import httpx\n\n"
        "        return Record(size(httpx.codes.OK))"
    )
    assert "It needs Python 3.11, httpx." in texts["header"]


# ---- checks and upgrades


@pytest.fixture
def package(tmp_path):
    return small(tmp_path)


def text_of(package):
    return joined(bundle(in_order(package, ["extra.py"]), "bundle extra -o x.py"))


def state_of(package, text):
    return states(package, sections(text)[1])


NEW_DATA = DATA.replace("ZERO = 0", "ZERO = 00")
WITH_OS = DATA.replace("import logging\n", "import logging\nimport os\n")
MINE = ("LIMIT = 3", "LIMIT = 4")


def test_check_says_of_each_part_what_became_of_it(tmp_path, package):
    text = text_of(package)
    assert {*state_of(package, text).values()} == {SHIPPED}
    newer = small(tmp_path, data=NEW_DATA, loop=LOOP.replace("a log", "the log"))
    found = state_of(newer, text.replace(*MINE).replace("class Extra", "class  Extra"))
    assert found["header"] == SHIPPED
    assert found["data.py"] == NEWER
    assert found["loop.py"] == f"{CHANGED}, and {NEWER}"
    assert found["extra.py"] == CHANGED


def test_an_upgrade_replaces_what_you_did_not_touch_and_shows_the_rest(tmp_path, package):
    text = f"#!/usr/bin/env python\n{text_of(package).replace(*MINE)}\n\nprint(Extra)\n"
    newer = small(tmp_path, data=NEW_DATA, loop=LOOP.replace("a log", "the log"))
    new, said = upgraded(newer, text)
    assert new.startswith("#!/usr/bin/env python\n")
    assert new.endswith("\nprint(Extra)\n")
    assert "ZERO = 00" in new
    assert "LIMIT = 4" in new
    assert "a log" in new
    assert said[0] == "data.py: replaced"
    assert said[1].startswith("loop.py: changed by you, and newer upstream, so it stays as it is")
    assert '-    """Keeps a log."""' in said
    assert "-LIMIT = 4  # of turns" in said
    assert '+    """Keeps the log."""' in said
    assert state_of(newer, new)["data.py"] == SHIPPED
    assert state_of(newer, new)["loop.py"] == f"{CHANGED}, and {NEWER}"
    assert upgraded(newer, new)[0] == new
    taken = re.search("put (sha256 [0-9a-f]{16}) into its marker line", said[1])[1]
    new = re.sub(r"(==== loop\.py ====.*)sha256 .*", rf"\1{taken}", new)
    assert state_of(newer, new)["loop.py"] == CHANGED


@given(st.sets(st.sampled_from(["data", "loop", "extra"])), st.sets(st.sampled_from("dle")))
def test_an_upgrade_keeps_every_touched_part_and_no_other(tmp_path_factory, touched, newer):
    folder = tmp_path_factory.mktemp("small")
    package = small(folder)
    text = text_of(package)
    for name in touched:
        end = {"data": "return n", "loop": "of a module", "extra": "codes.OK))"}[name]
        text = text.replace(f"{end}\n", f"{end}\n# mine: {name}\n")
    sources = {"data": DATA, "loop": LOOP, "extra": EXTRA}
    changed = {k: v + f"# newer: {k}\n" for k, v in sources.items() if k[0] in newer}
    new, _ = upgraded(small(folder, **changed), text)
    for name in sources:
        assert (f"# mine: {name}" in new) == (name in touched)
        assert (f"# newer: {name}" in new) == (name in changed and name not in touched)
    if not touched:
        assert new == text_of(small(folder, **changed))


def test_a_part_that_is_needed_now_is_added_with_its_imports(tmp_path, package):
    more = '"""Less."""\n\nfrom __future__ import annotations\n\nimport math\n\nPI = math.pi\n'
    loop = LOOP.replace(
        "from .data import Record", "from .data import Record\nfrom .more import PI"
    )
    newer = small(tmp_path, more=more, loop=loop.replace("LIMIT = 3", "LIMIT = PI"))
    text = text_of(package)
    assert state_of(newer, text)["more.py"] == "newer upstream, and missing here"
    new, said = upgraded(newer, text)
    assert new == text_of(newer)
    assert said == [
        f"{name}: {what}"
        for name, what in (
            ("header", "replaced"),
            ("imports", "replaced"),
            ("more.py", "added"),
            ("loop.py", "replaced"),
        )
    ]


def test_imports_of_yours_stay_and_newer_ones_are_for_you_to_take(tmp_path, package):
    text = text_of(package).replace("import logging\n", "import logging\nimport json\n", 1)
    text = text.replace(*MINE) + "\n\nprint(json, dataclass)\n"
    assert state_of(package, text)["imports"] == CHANGED
    assert "import json\n" in upgraded(small(tmp_path, data=NEW_DATA), text)[0]
    newer = small(tmp_path, data=WITH_OS)
    with pytest.raises(Refused, match=r"(?s)imports: changed by you, .*\+import os") as caught:
        upgraded(newer, text)
    taken = re.search("put (sha256 [0-9a-f]{16}) into its marker line", str(caught.value))[1]
    text = re.sub(r"(==== imports ====.*)sha256 .*", rf"\1{taken}", text)
    new, _ = upgraded(newer, text.replace("import json\n", "import json\nimport os\n", 1))
    assert "import json\nimport os\n" in new
    assert state_of(newer, new)["imports"] == CHANGED


@pytest.mark.parametrize(
    ("change", "newer", "why"),
    [
        (lambda t: re.sub(r"# ==== data.*\n", "", t), {}, "newer parts: Record, ZERO, size"),
        (lambda t: t + t[t.index("# ==== loop") :], {}, "a marker line twice"),
        (lambda t: t.replace("==== loop.py ====", "==== lop.py ====", 1), {}, "upstream: lop.py"),
        (lambda t: "print(1)\n", {}, "not a bundle"),
        (lambda t: t.replace("# MIT License", "# Mine"),
         {"data": DATA.replace("The data", "Data")},
         "(?s)header: changed by you, .*[+]#   data.py: Data"),
        (lambda t: t.replace("agentloop 0", "agentloop 999"), {}, "It is of agentloop 999"),
        (lambda t: t + "\nprint(field())\n",
         {"data": DATA.replace(", field", "").replace("field(default=ZERO)", "0")},
         "missing: field"),
        (lambda t: t.replace("ZERO = 0\n", "ZERO = 1\n"),
         {"data": DATA + "\n\nMORE = 1\n",
          "extra": EXTRA.replace("import size", "import MORE, size") + "\n\nmore = MORE\n"},
         "missing: MORE"),
        (lambda t: t.replace(*MINE),
         {"loop": LOOP + "\n    def cost(self): ...\n", "extra": EXTRA + "\n\nx = Extra.cost\n"},
         r"(?s)missing: cost.*\+    def cost"),
        (lambda t: t + "\nprint(Extra.old)\n", {"extra": EXTRA.replace("old(", "new(")},
         "missing: old"),
        (lambda t: t.replace(*MINE).replace("LIMIT = 4", "LIMIT ="), {}, "invalid syntax"),
    ],
)  # fmt: skip
def test_what_is_unclear_is_left_alone(tmp_path, capsys, monkeypatch, change, newer, why):
    (folder := tmp_path / "package").mkdir()
    (file := tmp_path / "my_agent.py").write_text(text := change(text_of(small(folder))))
    package = small(folder, **newer)
    monkeypatch.setattr(bundling, "read_package", lambda: package)
    assert main(["bundle", "--upgrade", str(file)]) == 2
    assert re.search(why, capsys.readouterr().err)
    assert file.read_text() == text


def test_a_part_that_is_gone_upstream_stops_an_upgrade(tmp_path, package):
    text = text_of(package)
    (tmp_path / "extra.py").unlink()
    (tmp_path / "loop.py").write_text(LOOP.replace("    from .extra import Extra\n", "    pass\n"))
    newer = read_package(tmp_path)
    assert state_of(newer, text)["extra.py"] == "gone upstream"
    with pytest.raises(Refused, match=r"gone upstream: extra\.py"):
        upgraded(newer, text)


# ---- the command


def command(*arguments):
    return main(["bundle", *map(str, arguments)])


def test_a_new_file_and_a_replaced_one(tmp_path, capsys):
    file = tmp_path / "my_agent.py"
    assert command("done", "-o", file) == 0
    assert capsys.readouterr().out.startswith(f"{file} has ")
    assert command("--check", file) == 0
    out = capsys.readouterr().out
    assert re.search(r"^mixins/done.py +as shipped$", out, re.M)
    assert command(*PARTS, "-o", file) == 2
    assert "--upgrade renews it, --force replaces it" in capsys.readouterr().err
    assert command(*PARTS, "-o", file, "--force") == 0
    assert command("--check", file) == 0, "its long command is read again"


def test_a_file_that_is_no_bundle_is_never_overwritten(tmp_path, capsys):
    file = tmp_path / "other.py"
    file.write_text("x = 1\n")
    assert command("done", "-o", file, "--force") == 2
    assert "not a bundle" in capsys.readouterr().err
    assert file.read_text() == "x = 1\n"


@pytest.mark.skipif(os.name == "nt", reason="it has other modes")
def test_an_upgrade_keeps_mode_and_links(tmp_path, capsys, monkeypatch):
    (folder := tmp_path / "package").mkdir()
    file, link = tmp_path / "my_agent.py", tmp_path / "link.py"
    file.write_bytes(text_of(small(folder)).replace("\n", "\r\n").encode())
    file.chmod(0o750)
    link.symlink_to(file)
    newer = small(folder, data=NEW_DATA)
    monkeypatch.setattr(bundling, "read_package", lambda: newer)
    assert command("--check", link) == 1
    assert re.search("^data.py +newer upstream$", capsys.readouterr().out, re.M)
    assert command("--upgrade", link) == 0
    assert capsys.readouterr().out == "data.py: replaced\n"
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert file.read_bytes() == text_of(newer).encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.py", "my_agent.py", "package"]
    file.write_bytes(file.read_bytes().replace(b"LIMIT = 3", b"LIMIT = 4"))
    newer = small(folder, data=NEW_DATA, loop=LOOP.replace("a log", "the log"))
    assert command("--upgrade", file) == 1, "something is left to do"


def test_an_unknown_part_is_an_error(tmp_path, capsys):
    assert command("compacton", "-o", tmp_path / "x.py") == 2
    assert "There is no part 'compacton': see --list." in capsys.readouterr().err
    assert command("-o", tmp_path / "x.py") == 2
    assert command("done") == 2
    assert "Name the parts, and a file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_list_shows_every_part_its_line_and_what_it_needs(capsys):
    assert command("--list") == 0
    out = capsys.readouterr().out
    for path in PARTS:
        part = PACKAGE[path]
        assert f"{Path(path).stem:12}{part.sentence}\n{'':12}needs {part.copy_with}" in out


def test_a_folder_gets_the_files_as_they_are(tmp_path, capsys):
    folder = tmp_path / "my_agent"
    assert command("agent", "openai", "-o", folder) == 0
    assert (folder / "__init__.py").read_text(encoding="utf-8").count("MIT License") == 1
    for path in folder.rglob("[!_]*.py"):
        name = path.relative_to(folder).as_posix()
        assert path.read_text(encoding="utf-8") == PACKAGE[name].source
    config = ["--no-cache", "--config", ROOT / "pyproject.toml"]
    run(sys.executable, "-m", "ruff", "format", "--check", *config, folder)
    run(sys.executable, "-m", "ruff", "check", *config, folder)
    code = "from my_agent.agent import Agent; print(Agent.__module__)"
    assert run(sys.executable, "-c", code, cwd=tmp_path) == "my_agent.agent\n"
    assert command("done", "-o", folder) == 2
    assert "has to be new or empty" in capsys.readouterr().err
    assert command("done", "-o", tmp_path / "my-agent") == 2


def test_bundle_check_prints_no_control_character(tmp_path, capsys):
    file = tmp_path / "bundle.py"
    assert main(["bundle", "loop", "-o", str(file)]) == 0
    shipped = file.read_text(encoding="utf-8")
    file.write_text(shipped.replace("# ==== loop.py ====", "# ==== \x1b]0;owned\x07 ===="))
    assert main(["bundle", "--check", str(file)]) == 2
    said = "".join(capsys.readouterr())
    assert "owned" in said
    assert "\x1b" not in said
