"""The package's files as the parts of a bundle: read, taken apart and put in order, never imported.

A part's text in a bundle is its text in the package without its imports, which stand at the top of
a bundle once. So its names have to be its own; and what `from . import events` made
`events.TextEvent` is `TextEvent` there.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = ["", "mixins", "models", "toolkits"]  # in the order in which one reads them
SHARED = re.compile(r'(\w+) = (?:logging\.getLogger|TypeVar|ParamSpec)\("\w+"\)')


class Refused(Exception):
    """Nothing was written, for this reason."""


class Import(NamedTuple):
    """`import module`, or `from module import name`, and what it is called here."""

    module: str
    name: str = ""
    alias: str = ""

    def __str__(self) -> str:
        what = f"from {self.module} import {self.name}" if self.name else f"import {self.module}"
        return what + (f" as {self.alias}" if self.alias else "")

    @property
    def binds(self) -> str:
        return self.alias or self.name or self.module.partition(".")[0]


FUTURE = Import("__future__", "annotations")
TYPE_CHECKING = Import("typing", "TYPE_CHECKING")


@dataclass
class Part:
    """A file of the package, taken apart."""

    path: str  # such as "mixins/done.py"
    source: str
    sentence: str = ""  # what it is
    copy_with: str = ""
    text: str = ""  # in a bundle
    before: list[str] = field(default_factory=list[str])  # the parts that it is made of
    needs: set[str] = field(default_factory=set[str])  # these, and those that are named elsewhere
    imports: set[Import] = field(default_factory=set[Import])
    typing: set[Import] = field(default_factory=set[Import])  # those that only checkers need
    later: set[str] = field(default_factory=set[str])  # modules that are imported where used
    shared: set[str] = field(default_factory=set[str])  # lines that several parts may have
    names: dict[str, str] = field(default_factory=dict[str, str])  # and what they mean here


def read_package(folder: Path = PACKAGE) -> dict[str, Part]:
    """The parts, by their paths, in the order in which one reads them."""
    sources = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for name in FOLDERS
        for path in sorted((folder / name).glob("[!_]*.py"))
    }
    return {path: take_apart(path, source, sources) for path, source in sources.items()}


def version(folder: Path = PACKAGE) -> str:
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    return text.partition('\n__version__ = "')[2].partition('"')[0]


def take_apart(path: str, source: str, package: Collection[str]) -> Part:
    """Finds out what a file needs, and leaves out of its text what a bundle has elsewhere."""
    part, tree, lines = Part(path, source), ast.parse(source), source.splitlines()
    sentence, *doc = (ast.get_docstring(tree) or "").split("\n\n")
    part.sentence = " ".join(sentence.split())
    part.copy_with = " ".join("".join(p for p in doc if p.startswith("Copy with:"))[10:].split())
    modules = dict[str, str]()  # of ours, by the names that they have here
    cuts = dict[int, tuple[int, list[str]]]()  # the line after, and what comes in the place
    for_checkers = set[ast.AST]()
    for node in tree.body:
        line = lines[node.lineno - 1]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for_checkers |= {*node.body}
            if node.orelse or not all(
                isinstance(n, ast.Import | ast.ImportFrom) for n in node.body
            ):
                raise Refused(f"{path}, line {node.lineno}: only imports can stand here")
            cuts[node.lineno - 1] = (node.end_lineno or 0, [])
        elif shared := SHARED.fullmatch(line):
            part.shared.add(line)
            part.names[shared[1]] = line
            cuts[node.lineno - 1] = (node.lineno, [])
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            part.names |= dict.fromkeys(bound([node]), path)
    for each in ast.walk(tree):
        if not isinstance(each, ast.Import | ast.ImportFrom):
            continue
        put: list[str] = []
        level = each.level if isinstance(each, ast.ImportFrom) else 0
        module = each.module or "" if isinstance(each, ast.ImportFrom) else ""
        at_top = each in tree.body
        for name in each.names:
            if level:
                where = [*path.split("/")[:-level], *filter(None, module.split("."))]
                file, inner = ("/".join(names) + ".py" for names in (where, [*where, name.name]))
                if file in package:
                    part.names.setdefault(name.name, file)
                    if name.asname:
                        part.names[name.asname] = path
                        put.append(f"{' ' * each.col_offset}{name.asname} = {name.name}")
                elif inner in package:
                    modules[name.asname or name.name] = file = inner
                else:
                    raise Refused(f"{path}, line {each.lineno}: there is no {file}")
                part.needs.add(file)
                if each not in for_checkers and file not in part.before:
                    part.before.append(file)
            elif at_top or each in for_checkers:
                new = Import(module or name.name, name.name if module else "", name.asname or "")
                (part.imports if at_top else part.typing).add(new)
            else:
                part.later.add((module or name.name).split(".")[0])
        if (level or at_top) and each not in for_checkers:
            cuts[each.lineno - 1] = (each.end_lineno or 0, put)
    local = {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)} | {
        each.id
        for each in ast.walk(tree)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    if both := modules.keys() & local:
        raise Refused(f"{path}: a module and a variable have one name: {', '.join(both)}")
    part.imports -= {FUTURE, TYPE_CHECKING}
    part.names |= {each.binds: str(each) for each in part.imports | part.typing}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & set(dir(builtins))
    part.names |= dict.fromkeys(used - part.names.keys(), "a builtin")
    part.text = rewritten(tree, lines, modules, cuts)
    return part


def bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that some statements give a meaning to, at the top of a module."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda | ast.comprehension):
            yield from bound(ast.iter_child_nodes(node))


def rewritten(
    tree: ast.Module,
    lines: list[str],
    modules: Mapping[str, str],
    cuts: Mapping[int, tuple[int, list[str]]],
) -> str:
    """The text of a file: `events.X` is `X`, and of each cut only what comes in its place stays."""
    uses = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    for name in sorted(uses, key=lambda name: -name.col_offset):
        if name.id in modules:
            line = lines[name.lineno - 1].encode()
            rest = line[name.col_offset + len(name.id.encode()) + 1 :]
            lines[name.lineno - 1] = (line[: name.col_offset] + rest).decode()
    for first, (last, put) in sorted(cuts.items(), reverse=True):
        start, end = first, last
        while start and not lines[start - 1]:
            start -= 1
        while end < len(lines) and not lines[end]:
            end += 1
        blank = [""] * (0 if lines[start - 1].endswith(":") else max(first - start, end - last))
        if put:
            lines[first:last] = put
        else:
            lines[start:end] = blank
    if not ast.get_docstring(tree):
        return "\n".join(lines).strip("\n")
    end = tree.body[0].end_lineno or 0
    doc = re.sub(r'\n\nCopy with:.*?(?=\n\n|\n?""")', "", "\n".join(lines[:end]), flags=re.S)
    doc = re.sub(r'\A(""".*)\n"""\Z', r'\1"""', doc)
    return "\n".join([doc, *lines[end:]]).strip("\n")


def choose(package: Mapping[str, Part], names: Iterable[str]) -> list[str]:
    """The files that are meant by "compaction", "mixins/compaction" or "mixins/compaction.py"."""
    found: list[str] = []
    for name in names:
        if name == "core":
            continue
        stem = name.removesuffix(".py")
        paths = [path for path in package if f"/{path}".endswith(f"/{stem}.py")]
        if len(paths) != 1:
            near = get_close_matches(stem, [Path(path).stem for path in package], n=3, cutoff=0.5)
            hint = f"Did you mean {' or '.join(paths or near)}?" if paths or near else "See --list."
            raise Refused(f"There is no part {name!r}. {hint}")
        found += paths
    return found


def in_order(package: Mapping[str, Part], chosen: Iterable[str]) -> list[Part]:
    """The core, these parts and all that they need, each behind those that it is made of.

    Refused: two of them give one name two meanings.
    """
    todo, needed, order = ["loop.py", *chosen], set[str](), dict[str, Part]()
    while todo:
        if (path := todo.pop()) not in needed:
            needed.add(path)
            todo += package[path].needs

    def visit(path: str) -> None:
        if path not in order:
            for each in package[path].before:
                visit(each)
            order[path] = package[path]

    for path in ["loop.py", *(path for path in package if path in needed)]:
        visit(path)
    parts = list(order.values())
    if clash := next(clashes(parts), None):
        raise Refused(f"These parts cannot be in one file: {clash}.")
    return parts


def clashes(parts: Iterable[Part]) -> Iterator[str]:
    meanings: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for part in parts:
        for name, meaning in part.names.items():
            meanings[name].setdefault(meaning, part.path)
    for name, found in meanings.items():
        if len(found) > 1:
            yield f"{name} is {' and '.join(f'{m} (in {path})' for m, path in found.items())}"
