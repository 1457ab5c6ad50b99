"""The package's files as the parts of a bundle: read, taken apart and put in order, never imported.

A part's text in a bundle is its text in the package without its imports, which stand at the top of
a bundle once. So its names have to be its own; and what `from . import events` made
`events.TextEvent` is `TextEvent` there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = ["", "mixins", "models", "toolkits"]  # in the order in which one reads them
SHARED = re.compile(r'\w+ = (?:logging\.getLogger|TypeVar|ParamSpec)\("\w+"\)')
CUT = "\0"  # stands for a statement that a bundle has elsewhere


class Refused(Exception):
    """Nothing was written, for this reason."""


class Import(NamedTuple):
    """`import module`, or `from module import name`."""

    module: str
    name: str = ""


@dataclass
class Part:
    """A file of the package, taken apart."""

    path: str  # such as "mixins/done.py"
    source: str
    sentence: str = ""  # what it is
    copy_with: str = ""
    text: str = ""  # in a bundle
    before: list[str] = field(default_factory=list[str])  # the parts that it is made of
    imports: set[Import] = field(default_factory=set[Import])
    packages: set[str] = field(default_factory=set[str])  # that it imports, anywhere in it
    shared: set[str] = field(default_factory=set[str])  # lines that several parts may have


def read_package(folder: Path = PACKAGE) -> dict[str, Part]:
    """The parts, by their paths, in the order in which one reads them."""
    files = [path for name in FOLDERS for path in sorted((folder / name).glob("[!_]*.py"))]
    return {
        (name := path.relative_to(folder).as_posix()): take_apart(name, path.read_text("utf-8"))
        for path in files
    }


def version(folder: Path = PACKAGE) -> str:
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    return text.partition('\n__version__ = "')[2].partition('"')[0]


def take_apart(path: str, source: str) -> Part:
    """Finds out what a file needs, and leaves out of its text what a bundle has elsewhere."""
    part, tree, lines = Part(path, source), ast.parse(source), source.splitlines()
    sentence, *doc = (ast.get_docstring(tree) or "").split("\n\n")
    part.sentence = " ".join(sentence.split())
    part.copy_with = " ".join("".join(p for p in doc if p.startswith("Copy with:"))[10:].split())
    modules: list[str] = []  # of ours, by the names that they have here
    at_top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    typing = [n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    for_checkers = [each for node in typing for each in node.body]
    later: list[ast.ImportFrom] = []  # what is imported in a function, for a quick start
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            for each in node.names:
                where = [*path.split("/")[: -node.level], *(node.module or each.name).split(".")]
                if node not in for_checkers:  # what only checkers need is in the core
                    part.before.append("/".join(where) + ".py")
                if node not in [*at_top, *for_checkers, *later]:
                    later.append(node)
                if not node.module:
                    modules.append(each.asname or each.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for each in node.names:
                new = Import(module, each.name) if module else Import(each.name)
                part.packages.add(new.module.partition(".")[0])
                part.imports |= {new} if node in at_top else set()
    others = [n for n in for_checkers if not getattr(n, "level", 0)]
    part.shared |= {f"if TYPE_CHECKING:\n    {ast.unparse(n)}" for n in others}
    if not others:
        part.imports.discard(Import("typing", "TYPE_CHECKING"))
    nodes = sorted([*tree.body, *later], key=lambda node: node.lineno)
    for node in reversed(nodes):
        shared = SHARED.fullmatch(line := lines[node.lineno - 1])
        part.shared |= {line} if shared else set()
        if shared or node in [*at_top, *later, *typing]:
            lines[node.lineno - 1 : node.end_lineno] = [CUT]
    text = "\n".join(lines)
    text = re.sub(rf"\n+({CUT}\n+)+", lambda match: max(match[0].split(CUT)), text)
    text = re.sub(r'\n\nCopy with:.*?(?=\n\n|\n?""")', "", text, count=1, flags=re.S)
    text = re.sub(r'\A(""".*)\n"""', r'\1"""', text)
    for name in modules:
        text = re.sub(rf"\b{name}\.(?=[A-Z])", "", text)
    part.text = text
    return part


def choose(package: Mapping[str, Part], names: Iterable[str]) -> list[str]:
    """The files that are meant by "compaction", "mixins/compaction" or "mixins/compaction.py"."""
    found: list[str] = []
    for name in names:
        if name == "core":
            continue
        stem = name.removesuffix(".py")
        paths = [path for path in package if f"/{path}".endswith(f"/{stem}.py")]
        if len(paths) != 1:
            raise Refused(f"There is no part {name!r}: see --list.")
        found += paths
    return found


def in_order(package: Mapping[str, Part], chosen: Iterable[str]) -> list[Part]:
    """The core, these parts and all that they need, each behind those that it is made of."""
    todo, needed, order = ["loop.py", *chosen], set[str](), dict[str, Part]()
    while todo:
        if (path := todo.pop()) not in needed:
            needed.add(path)
            todo += package[path].before

    def visit(path: str) -> None:
        if path not in order:
            for each in package[path].before:
                visit(each)
            order[path] = package[path]

    for path in ["loop.py", *(path for path in package if path in needed)]:
        visit(path)
    return list(order.values())
