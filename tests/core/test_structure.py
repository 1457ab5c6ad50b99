"""The structure of the package: permitted imports, module docstrings and tracked files."""

import ast
import re
import subprocess
import sys
from functools import cache

import pytest

from tests import ROOT

PACKAGE = ROOT / "agentloop"
FILES = sorted(PACKAGE.rglob("*.py"))
REAL = [path for path in FILES if path.name not in ("__init__.py", "__main__.py", "agent.py")]
CORE = [path for path in REAL if path.parent == PACKAGE]
COMMON = [path for path in REAL if path.parent.name == "common"]
PARTS = [path for path in REAL if path.parent.name in ("models", "mixins", "toolkits")]


@cache
def imports(path):
    """Return the imported modules of the package, as names such as "loop" or "models.http"."""
    package = path.relative_to(PACKAGE).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - (node.level - 1)]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {".".join([*base, name]) for name in names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentloop"):
            found.add(node.module.removeprefix("agentloop."))
    return found


def ident(path):
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", PARTS, ids=ident)
def test_a_part_imports_the_core_and_common_modules_and_no_sibling(path):
    allowed = {file.stem for file in CORE} | {f"common.{file.stem}" for file in COMMON}
    if path.parent.name == "models":
        # the four wire formats share one transport (http) and pure functions for common fields
        # (wire): a merged module would mix both, and copies in each provider would repeat them
        allowed |= {"models.http", "models.wire"}
    if path.parent.name == "toolkits":
        allowed.add("toolkits.environment")  # reading of configurations, masking of secrets
    if path.stem in ("openai", "openai_messages", "responses"):
        allowed |= {"models.completions", "models.responses"}  # the two wire formats of OpenAI
    assert imports(path) <= allowed


@pytest.mark.parametrize("path", COMMON, ids=ident)
def test_a_common_module_imports_only_the_core_and_common_modules(path):
    allowed = {file.stem for file in CORE} | {f"common.{file.stem}" for file in COMMON}
    assert imports(path) <= allowed


@pytest.mark.parametrize("path", CORE, ids=ident)
def test_the_core_imports_only_the_core(path):
    assert imports(path) <= {file.stem for file in CORE}


def test_imports_have_no_cycles():
    needs = {}
    for path in REAL:
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        needs[name] = imports(path)
    while leaves := [name for name, needed in needs.items() if not needed & needs.keys()]:
        for name in leaves:
            del needs[name]
    assert not needs


def test_messages_imports_no_other_module_of_the_package_at_run_time():
    code = (
        "import sys, types; m = types.ModuleType('agentloop'); m.__path__ = [sys.argv[1]];"
        "sys.modules['agentloop'] = m; import agentloop.messages;"
        "print(sorted(n for n in sys.modules if n.startswith('agentloop')))"
    )
    out = subprocess.check_output([sys.executable, "-c", code, PACKAGE], text=True)
    assert out.strip() == "['agentloop', 'agentloop.messages']"


def test_importing_agent_loads_no_large_package_and_opens_no_file_or_socket():
    code = """
import sys
from functools import cache
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
def test_a_module_docstring_has_one_summary_sentence_and_the_files_to_copy(path):
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert re.match(r"[^\n]+[.:][^\n]*\n\nCopy with: [^\n]+", doc), doc[:200]


def with_imports(names):
    """Return modules of the package, and their direct and indirect imports."""
    found, left = set(), {*names}
    while left:
        name = left.pop()
        found.add(name)
        left |= imports((PACKAGE / name.replace(".", "/")).with_suffix(".py")) - found
    return found


@pytest.mark.parametrize("path", [*CORE, *COMMON, *PARTS], ids=ident)
def test_the_files_to_copy_are_the_imported_files(path):
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = re.search(r"(?s)\nCopy with: (.*?)(?:\n\n|$)", doc)[1]
    listed = {name.replace("/", ".") for name in re.findall(r"([\w/]+)\.py", text)}
    if "the core" in text:
        listed |= {file.stem for file in CORE}
    needed = with_imports(imports(path))
    assert needed <= (with_imports(listed) if "imports" in text else listed)
    assert listed <= needed | {file.stem for file in CORE}


def test_every_public_name_exists_and_is_documented():
    import agentloop

    for name in agentloop.__all__:
        assert getattr(agentloop, name).__doc__ or not callable(getattr(agentloop, name)), name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = agentloop.no_such_name


def test_no_file_contains_a_path_of_a_machine():
    for path in [*FILES, ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]:
        assert not re.search(r"/(root|home|work)/", path.read_text(encoding="utf-8")), path


def test_git_tracks_only_the_listed_files_at_the_top_level():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    top = {path.split("/")[0] for path in tracked.split("\0") if path}
    allowed = {"LICENSE", "README.md", "agentloop", "examples", "pyproject.toml", "tests"}
    assert top - allowed <= {".ci", ".github", ".gitignore", ".pre-commit-config.yaml"}
