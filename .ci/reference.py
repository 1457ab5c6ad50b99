"""Build the reference from the docstrings: one page per module, with a search field.

    pip install -e '.[docs]' && python .ci/reference.py  # then open build/reference/agentloop.html

Modules with public names (tests/library/test_api.py) list only these names. Docstrings are plain
text with two conventions, which this program converts to Markdown: indented blocks are code, and
paragraphs of `name: description` lines are lists of settings or parameters. Every warning is an
error.
"""

import ast
import importlib
import re
import sys
import warnings
from contextlib import suppress
from dataclasses import is_dataclass
from inspect import unwrap
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import get_type_hints

import httpx
import pdoc

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "reference"
INTERNAL = re.compile(r"agentloop\.(cli|__main__|\w+\.deprecated)\b")
ENTRY = re.compile(r"^(\w+(?:, \w+)*): (.*(?:\n {4}.*)*)\n?", re.MULTILINE)
SECTION = re.compile(r"([A-Z]\w+):\n((?: {4}.*\n?)+)")
CODE = re.compile(r"(`[^`]+`)")


def module_names() -> list[str]:
    """Return the names of all modules except internal modules."""
    files = sorted((ROOT / "agentloop").rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    names = [name.removesuffix(".__init__") for name in names]
    return [name for name in names if not INTERNAL.match(name)]


def select_public_names() -> None:
    """Restrict modules to their public names, and packages to their modules."""
    from tests.library.test_api import MODULES

    modules = {name: importlib.import_module(name) for name in module_names()}
    public = {name: list(names) for name, names in MODULES.items() if name != "agentloop"}
    for name in MODULES["agentloop"]:
        public.setdefault(home(name, modules), []).append(name)
    for name, names in public.items():
        modules[name].__all__ = sorted(names)
    for package, module in modules.items():
        if hasattr(module, "__path__"):  # without the deprecated modules that it can import
            parts = [name.rpartition(".") for name in modules]
            module.__all__ = [part for parent, _, part in parts if parent == package]


def home(name: str, modules: dict[str, ModuleType]) -> str:
    """Return the module that defines a name of the top-level package."""
    value = getattr(modules["agentloop"], name)
    defined = getattr(value, "__module__", "")
    return defined if defined in modules else "agentloop.messages"  # a union of types


def resolve_fields(cls: type) -> None:
    """Evaluate the types of a dataclass's fields in the modules of the classes that define them."""
    hints = get_type_hints(cls, localns={"httpx": httpx}, include_extras=True)
    for method in (unwrap(cls.__init__), cls.__new__):
        if hasattr(method, "__annotations__"):
            method.__annotations__ = hints


def to_markdown(docstring: str) -> str:
    """Convert a docstring to Markdown."""
    title, *blocks = blocks_of(docstring)
    return "\n\n".join([escape(title), *map(block_to_markdown, blocks)])


def blocks_of(docstring: str) -> list[str]:
    """Return the paragraphs and the indented blocks, which may contain empty lines."""
    blocks: list[str] = []
    for block in docstring.strip().split("\n\n"):
        if block.startswith("    ") and blocks and blocks[-1].startswith("    "):
            blocks[-1] += f"\n\n{block}"
        else:
            blocks.append(block.rstrip())
    return blocks


def block_to_markdown(block: str) -> str:
    if block.startswith("    "):
        code = dedent(block)
        return f"```{'python' if is_python(code) else 'text'}\n{code}\n```"
    if section := SECTION.fullmatch(block):
        return f"**{section[1]}**\n\n{block_to_markdown(dedent(section[2]).rstrip())}"
    if ENTRY.sub("", block) == "":
        return "\n".join(f"- `{name}`: {escape(text)}" for name, text in ENTRY.findall(block))
    return escape(block)


def is_python(code: str) -> bool:
    with suppress(SyntaxError):
        return bool(ast.parse(code))
    return False


def escape(text: str) -> str:
    """Escape the characters that Markdown and HTML would interpret, outside of `code`."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(r"([*\[\]<>])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("\\<", "&lt;").replace("\\>", "&gt;")


def build(folder: Path) -> None:
    """Write the pages to a folder."""
    warnings.simplefilter("error")
    pdoc.render.configure(docformat="markdown", template_directory=ROOT / ".ci" / "pdoc")
    pdoc.render.env.filters["to_markdown"] = to_markdown
    select_public_names()
    for name in module_names():
        for value in vars(sys.modules[name]).values():
            has_fields = is_dataclass(value) or hasattr(value, "_fields")
            if has_fields and isinstance(value, type) and value.__module__ == name:
                resolve_fields(value)
    pdoc.pdoc("agentloop", output_directory=folder)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    build(Path(*sys.argv[1:2] or [FOLDER]))
