"""Build the reference from the docstrings, one page per module, and pages from the how-to files.

    pip install --group docs && python .ci/reference.py  # then open build/reference/agentloop.html

Modules with public names (tests/library/test_api.py) list only these names. Docstrings are plain
text with two conventions, which this program converts to Markdown: indented blocks are code, and
paragraphs of `name: description` lines are lists of settings or parameters. Every warning is an
error. The how-to pages are in the folder howto, next to the recipes that they link.
"""

import ast
import importlib
import re
import shutil
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
import markdown2
import pdoc

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "reference"
INTERNAL = re.compile(r"agentloop\.(cli|__main__|\w+\.deprecated)\b")
ENTRY = re.compile(r"^(\w+(?:, \w+)*): (.*(?:\n {4}.*)*)\n?", re.MULTILINE)
SECTION = re.compile(r"([A-Z]\w+):\n((?: {4}.*\n?)+)")
CODE = re.compile(r"(`[^`]+`)")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")
FENCE = re.compile(r"^(```\w+) .+$", re.MULTILINE)
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
<main>
<p><a href="../agentloop.html">Reference</a> · <a href="index.html">How-to pages</a></p>
{body}
</main>
</html>
"""
STYLE = """
main {max-width: 48rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif}
pre {overflow-x: auto; padding: .75rem; background: #f5f5f5; font-size: .85rem}
td, th {padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top}
"""


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
    if defined in modules:
        return defined
    unions = "agentloop.messages", "agentloop.transcript"  # a union of types has no module
    return next(module for module in unions if hasattr(modules[module], name))


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


def write_howto(folder: Path) -> None:
    """Write the how-to files as pages, and copy the recipes that they link."""
    (folder / "howto").mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "examples" / "recipes", folder / "recipes", dirs_exist_ok=True)
    for path in sorted((ROOT / "examples" / "howto").glob("*.md")):
        text = LINK.sub(site_link, path.read_text(encoding="utf-8"))
        text = FENCE.sub(r"\1", text)  # the name of the file is in the sentence above the block
        body = markdown2.markdown(text, extras=["fenced-code-blocks", "tables"])
        title = text.partition("\n")[0].lstrip("# ")
        page = PAGE.format(title=title, style=STYLE, body=body)
        (folder / "howto" / page_name(path.name)).write_text(page, encoding="utf-8")


def page_name(name: str) -> str:
    return "index.html" if name == "README.md" else name.replace(".md", ".html")


def site_link(found: re.Match[str]) -> str:
    """Return a link to a page or a recipe of the site, or only the text of any other link."""
    text, target = found.groups()
    if target.startswith("../recipes/") and target.endswith(".py"):
        return found[0]
    if "/" not in target and target.endswith(".md"):
        return f"[{text}]({page_name(target)})"
    return text


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    site = Path(*sys.argv[1:2] or [FOLDER])
    build(site)
    write_howto(site)
