"""The reference: pages are built without warnings, and examples in docstrings are correct."""

import ast
import builtins
import importlib
import inspect
import re
import subprocess
import sys

import pytest

import agentloop
from agentloop import Loop
from tests import ROOT
from tests.library.test_api import MODULES

PARTS = sorted(
    f"agentloop.{path.parent.name}.{path.stem}"
    for folder in ("mixins", "models", "toolkits")
    for path in (ROOT / "agentloop" / folder).glob("[a-z]*.py")
)
SHARED = {  # code shared by other parts
    f"agentloop.models.{name}" for name in ("completions", "responses", "wire")
}
GIVEN = {  # names that the examples do not define
    *("llm", "agent", "tools", "read", "write", "search", "small", "hundreds", "where_it_is"),
    "get_weather",
    *("how_many_are_open", "url", "client_metadata", "token_storage", "open_browser"),
    *(
        "await_callback",
        "OAuthClientProvider",
        "DBOS",
        "connect",
        "Annotated",
        "Db",
        "text",
        "messages",
    ),
}
pytest.importorskip("opentelemetry.trace", reason="examples are read from every module")


def examples(module):
    """Return the indented code blocks of a module's docstring, without tables."""
    paragraphs = re.split(r"\n\n(?! {4})", inspect.getdoc(module) or "")
    blocks = [text for part in paragraphs for text in part.split("\n\n", 1)[1:]]
    return [inspect.cleandoc(f"\n{block}") for block in blocks if block[4] != "|"]


DOCUMENTED = [name for name in [*PARTS, *MODULES] if examples(importlib.import_module(name))]


def public_names(module):
    """Return the names available to examples without a definition, with their values."""
    values = dict(vars(builtins)) | dict.fromkeys(GIVEN)
    for name, names in MODULES.items():
        values |= {each: getattr(importlib.import_module(name), each) for each in names}
    return values | {k: v for k, v in vars(module).items() if k[0] != "_"}


def defined_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


@pytest.mark.parametrize("name", sorted(set(DOCUMENTED)))
def test_names_settings_and_attributes_in_examples_exist(name):
    module = importlib.import_module(name)
    values = public_names(module)
    tree = ast.parse("\n".join(examples(module)))
    defined = set(defined_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):  # settings of a mixin are checked by its class
            code = ast.Module([node], [])
            exec(compile(code, name, "exec", dont_inherit=True), values)
    loops = [v for v in values.values() if isinstance(v, type) and issubclass(v, Loop)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            assert node.id in values or node.id in defined
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "agent":
            assert any(hasattr(loop, node.attr) for loop in loops), node.attr
        if isinstance(node, ast.Call) and callable(values.get(ast.unparse(node.func))):
            parameters = inspect.signature(values[ast.unparse(node.func)]).parameters
            is_open = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
            keywords = {keyword.arg for keyword in node.keywords}
            assert is_open or keywords <= parameters.keys(), ast.unparse(node)


@pytest.mark.parametrize("name", sorted(set(DOCUMENTED)))
def test_examples_that_import_agentloop_are_programs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for program in examples(importlib.import_module(name)):
        if "from agentloop import" in program:
            exec(compile(program, name, "exec", dont_inherit=True), {"__name__": "__main__"})
            assert capsys.readouterr().out


@pytest.mark.parametrize("name", sorted({*PARTS} - SHARED))
def test_every_mixin_model_and_toolkit_has_an_example_or_names_a_recipe(name):
    module = importlib.import_module(name)
    recipes = re.findall(r"examples/(?:recipes|howto)/\w+\.\w+", module.__doc__)
    assert examples(module) or recipes
    assert all((ROOT / recipe).exists() for recipe in recipes)


def test_the_docstring_of_the_package_fits_on_one_screen_and_its_names_exist():
    lines = agentloop.__doc__.strip().splitlines()
    assert 24 <= len(lines) <= 40
    assert "print(Agent(" in examples(agentloop)[0]
    for name in re.findall(r"`(\w+)`", agentloop.__doc__):
        assert hasattr(agentloop, name), name


# ---- the pages


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Build all pages in a separate process, because the program changes `__all__`."""
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("reference")
    command = [sys.executable, str(ROOT / ".ci" / "reference.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "agentloop"


def test_every_mixin_model_and_toolkit_has_a_page(pages):
    for name in PARTS:
        assert (pages.parent / name.replace(".", "/")).with_suffix(".html").exists(), name
    assert (pages.parent / "search.js").stat().st_size > 100_000


def test_settings_are_rendered_as_lists_and_examples_as_code(pages):
    page = (pages / "mixins" / "limits.html").read_text(encoding="utf-8")
    assert re.search(r"<li><code>.*max_requests.*</code>: how many model requests", page)
    assert re.search(r'<span class="k">class</span>.*MyAgent', page)


def test_each_howto_page_links_only_files_that_exist(pages):
    howto = pages.parent / "howto"
    for path in (ROOT / "examples" / "howto").glob("[a-z]*.md"):
        page = (howto / f"{path.stem}.html").read_text(encoding="utf-8")
        assert "<pre" in page
        for target in re.findall(r'href="(?!https?:)([^"#]+)"', page):
            assert (howto / target).exists(), target
    assert "chatbot.html" in (howto / "index.html").read_text(encoding="utf-8")
