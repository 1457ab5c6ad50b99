"""The shape of the package: what may import what, what an import loads, how long files are."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agentloop"
FILES = sorted(PACKAGE.rglob("*.py"))
REAL = [path for path in FILES if path.name not in ("__init__.py", "__main__.py", "agent.py")]
CORE = [path for path in REAL if path.parent == PACKAGE]
COMMON = [path for path in REAL if path.parent.name == "common"]
PARTS = [path for path in REAL if path.parent.name in ("models", "mixins", "toolkits")]


def imports(path):
    """The modules of ours that a file imports, as names such as "loop" or "models.http"."""
    package = path.relative_to(PACKAGE).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - (node.level - 1)]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from (".".join([*base, name]) for name in names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentloop"):
            yield node.module.removeprefix("agentloop.")


def ident(path):
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", PARTS, ids=ident)
def test_a_part_imports_the_core_and_what_is_common_and_no_sibling(path):
    allowed = {file.stem for file in CORE} | {f"common.{file.stem}" for file in COMMON}
    if path.parent.name == "models":
        # the four wires share one transport (http), and as pure functions what they write and read
        # alike (wire): in http.py a reader would meet both at once, and in each provider all of it
        allowed |= {"models.http", "models.wire"}
    if path.parent.name == "toolkits":
        allowed.add("toolkits.environment")  # how configs are read, and secrets hidden
    if path.stem in ("openai", "openai_messages", "responses"):
        allowed |= {"models.completions", "models.responses"}  # OpenAI's two wires
    assert set(imports(path)) <= allowed


@pytest.mark.parametrize("path", COMMON, ids=ident)
def test_what_is_common_imports_the_core_and_what_is_common(path):
    allowed = {file.stem for file in CORE} | {f"common.{file.stem}" for file in COMMON}
    assert set(imports(path)) <= allowed


@pytest.mark.parametrize("path", CORE, ids=ident)
def test_the_core_imports_nothing_but_the_core(path):
    assert set(imports(path)) <= {file.stem for file in CORE}


def test_no_files_import_each_other_in_a_circle():
    needs = {}
    for path in REAL:
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        needs[name] = set(imports(path))
    while leaves := [name for name, needed in needs.items() if not needed & needs.keys()]:
        for name in leaves:
            del needs[name]
    assert not needs


def test_messages_import_nothing_of_ours_at_run_time():
    code = (
        "import sys, types; m = types.ModuleType('agentloop'); m.__path__ = [sys.argv[1]];"
        "sys.modules['agentloop'] = m; import agentloop.messages;"
        "print(sorted(n for n in sys.modules if n.startswith('agentloop')))"
    )
    out = subprocess.check_output([sys.executable, "-c", code, PACKAGE], text=True)
    assert out.strip() == "['agentloop', 'agentloop.messages']"


def test_importing_an_agent_loads_nothing_heavy_and_opens_nothing():
    code = """
import sys
def guard(name, args):
    assert not name.startswith(('socket.', 'subprocess.')), (name, args)
    assert name != 'open' or not set('wax+') & set(str(args[1] or '')), (name, args)
sys.addaudithook(guard)
sys.dont_write_bytecode = True
from agentloop import Agent, tool
bad = {'httpx', 'tiktoken', 'mcp', 'openai', 'agentloop.cli'} & set(sys.modules)
assert not bad, bad
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("path", [*CORE, *COMMON, *PARTS], ids=ident)
def test_a_file_begins_with_one_sentence_and_what_to_copy_with_it(path):
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert re.match(r"[^\n]+[.:][^\n]*\n\nCopy with: [^\n]+", doc), doc[:200]


def with_what_they_need(names):
    """Some modules of ours, and all that they import, at any depth."""
    found, left = set(), {*names}
    while left:
        name = left.pop()
        found.add(name)
        left |= {*imports((PACKAGE / name.replace(".", "/")).with_suffix(".py"))} - found
    return found


@pytest.mark.parametrize("path", [*COMMON, *PARTS], ids=ident)
def test_what_a_file_says_to_copy_with_it_is_what_it_needs(path):
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = re.search(r"(?s)\nCopy with: (.*?)(?:\n\n|$)", doc)[1]
    named = {name.replace("/", ".") for name in re.findall(r"([\w/]+)\.py", text)}
    if "the core" in text:
        named |= {file.stem for file in CORE}
    needed = with_what_they_need(imports(path))
    assert needed <= (with_what_they_need(named) if "imports" in text else named)
    assert named <= needed | {file.stem for file in CORE}


def test_every_public_name_is_there_and_documented():
    import agentloop

    for name in agentloop.__all__:
        assert getattr(agentloop, name).__doc__ or not callable(getattr(agentloop, name)), name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = agentloop.no_such_name


def test_no_file_speaks_of_a_machine():
    for path in [*FILES, ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]:
        assert not re.search(r"/(root|home|work)/", path.read_text(encoding="utf-8")), path


def test_git_tracks_nothing_else_at_the_top():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    top = {path.split("/")[0] for path in tracked.split("\0") if path}
    allowed = {"LICENSE", "README.md", "agentloop", "examples", "pyproject.toml", "tests"}
    assert top - allowed <= {".ci", ".github", ".gitignore"}


NO_VERB = re.compile(
    "An?|The|What|Whether|As|One|None|Nobody|How|Which|Its?|They|In|For|Of|By|Each|All|Every|True|"
    "False|Nothing"
)


@pytest.mark.parametrize("path", FILES, ids=ident)
def test_a_functions_docstring_begins_with_a_verb_in_the_imperative(path):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, functions) and (doc := ast.get_docstring(node)):
            first = doc.split()[0].rstrip(".,:")
            assert not NO_VERB.fullmatch(first), f"{node.name}: {doc}"
            assert re.fullmatch(r"[A-Za-z][a-z]+", first), f"{node.name}: {doc}"
            assert not re.search(r"[^s]s$", first), f"{node.name}: {doc}"
