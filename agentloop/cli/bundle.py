"""`python -m agentloop bundle`: the core and the parts of your choice, as one file that is yours.

The package's files are read and never imported. A part is one of them; its text in a bundle is its
text in the package without its imports, which stand at the top once, so its names have to be its
own. What `from . import events` made `events.TextEvent` is `TextEvent` there.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from textwrap import fill, indent
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = ["", "mixins", "models", "toolkits"]  # in the order in which one reads them
WIDTH = 100
SHARED = re.compile(r'(\w+) = (?:logging\.getLogger|TypeVar|ParamSpec)\("\w+"\)')
LICENSE = """\
MIT License

Copyright (c) 2026 The agentloop authors

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


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
    wants: set[str] = field(default_factory=set[str])  # names from other parts
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
    return re.findall(r'^__version__ = "(.*)"', text, re.M)[0]


def take_apart(path: str, source: str, package: Collection[str]) -> Part:
    """Finds out what a file needs, and leaves out of its text what a bundle has elsewhere."""
    part, tree, lines = Part(path, source), ast.parse(source), source.splitlines()
    sentence, *doc = (ast.get_docstring(tree) or "").split("\n\n")
    part.sentence = " ".join(sentence.split())
    part.copy_with = " ".join("".join(p for p in doc if p.startswith("Copy with:"))[10:].split())
    modules = dict[str, str]()  # of ours, by the names that they have here
    cuts = dict[int, tuple[int, list[str]]]()  # the line after, and what comes in the place
    for_checkers = set[ast.stmt]()
    for node in tree.body:
        line = lines[node.lineno - 1]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for_checkers |= {*node.body}
            cuts[node.lineno - 1] = (node.end_lineno or 0, [])
        elif shared := SHARED.fullmatch(line):
            part.shared.add(line)
            part.names[shared[1]] = line
            cuts[node.lineno - 1] = (node.lineno, [])
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            part.names |= dict.fromkeys(bound([node]), path)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        put: list[str] = []
        level = node.level if isinstance(node, ast.ImportFrom) else 0
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        for name in node.names:
            if level:
                where = [*path.split("/")[:-level], *filter(None, module.split("."))]
                file = "/".join(where) + ".py"
                if file not in package:
                    file = "/".join([*where, name.name]) + ".py"
                    modules[name.asname or name.name] = file
                elif name.asname:
                    put.append(f"{' ' * node.col_offset}{name.asname} = {name.name}")
                if file not in package:
                    raise Refused(f"{path}, line {node.lineno}: there is no {file}")
                part.needs.add(file)
                part.wants |= {name.name} - modules.keys()
                if node in tree.body and file not in part.before:
                    part.before.append(file)
            elif node in tree.body or node in for_checkers:
                new = Import(module or name.name, name.name if module else "", name.asname or "")
                (part.typing if node in for_checkers else part.imports).add(new)
            else:
                part.later.add((module or name.name).split(".")[0])
        if (level or node in tree.body) and node not in for_checkers:
            cuts[node.lineno - 1] = (node.end_lineno or 0, put)
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


# ---- what it is written as


class Section(NamedTuple):
    """A piece of a bundle, below its marker line."""

    name: str  # a part's path, or "header", "imports", "yours"
    version: str
    hash: str  # of the text as it was written
    text: str

    def __str__(self) -> str:
        mark = f"# ==== {self.name} ==== agentloop {self.version}, sha256 {self.hash}"
        return f"{mark}\n{self.text}".rstrip("\n") + "\n"


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def bundle(parts: Sequence[Part], command: str) -> list[Section]:
    """The sections of a bundle. The last one, "yours", is for what people add."""
    imports = {each for part in parts for each in part.imports}
    typing = {each for part in parts for each in part.typing}
    block = import_block(imports, typing, {line for part in parts for line in part.shared})
    texts = {"header": header(parts, command), "imports": block}
    texts |= {part.path: part.text for part in parts} | {"yours": ""}
    number = version()
    return [Section(name, number, digest(text), text) for name, text in texts.items()]


def joined(sections: Iterable[Section]) -> str:
    return "\n\n".join(map(str, sections))


def header(parts: Sequence[Part], command: str) -> str:
    listed = (f"{part.path}: {part.sentence}" for part in parts)
    contents = [fill(line, 96, initial_indent="  ", subsequent_indent="      ") for line in listed]
    text = f"""\
An agent in one file. It is yours: read it, edit it, add to it at its end. Made by

  {command}

`python -m agentloop bundle --check FILE` says what you changed in it and what is newer in
agentloop, and --upgrade gets that. It needs Python 3.11 and {packages(parts)}.

{chr(10).join(contents)}

{LICENSE}"""
    return "\n".join(f"# {line}".rstrip() for line in text.rstrip().split("\n"))


def packages(parts: Iterable[Part]) -> str:
    """What has to be installed for some parts."""
    parts = list(parts)
    always = {each.module.split(".")[0] for part in parts for each in part.imports}
    later = {name for part in parts for name in part.later} - always
    first, then = (sorted(names - sys.stdlib_module_names) for names in (always, later))
    return ", ".join([*first, *(f"{name} (where it is used)" for name in then)])


def import_block(imports: set[Import], typing: set[Import], shared: Iterable[str]) -> str:
    blocks = [render({*imports, FUTURE, *([TYPE_CHECKING] if typing - imports else [])})]
    if typing - imports:
        blocks.append(f"if TYPE_CHECKING:\n{indent(render(typing - imports), ' ' * 4)}")
    return "\n\n".join([*blocks, "\n".join(sorted(shared))]).rstrip()


def render(imports: Iterable[Import]) -> str:
    """Imports as ruff sorts and formats them."""
    groups: defaultdict[tuple[int, bool, str, str], list[str]] = defaultdict(list)
    for each in set(imports):
        top = each.module.strip(".").split(".")[0]
        section = [each == FUTURE, top in sys.stdlib_module_names, each.module[0] != ".", True]
        groups[section.index(True), bool(each.name), each.module, each.alias].append(each.name)
    blocks: defaultdict[int, list[str]] = defaultdict(list)
    for (section, _, module, alias), names in sorted(groups.items()):
        line = str(Import(module, ", ".join(in_order_of_kind(names)), alias))
        if len(line) > WIDTH:
            line = (
                f"from {module} import (\n    " + ",\n    ".join(in_order_of_kind(names)) + ",\n)"
            )
        blocks[section].append(line)
    return "\n\n".join("\n".join(lines) for lines in blocks.values())


def in_order_of_kind(names: Iterable[str]) -> list[str]:
    """Constants, classes, the rest."""
    return sorted(names, key=lambda n: (not (n.isupper() and n[1:]), not n[:1].isupper(), n))


def write_folder(folder: Path, parts: Sequence[Part], command: str) -> None:
    """The parts as the files of a package, with an `__init__.py` that exports what theirs do."""
    exports = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    names = {
        Import(f".{node.module}", each.name)
        for node in ast.walk(exports)
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for each in node.names
        if node.module.replace(".", "/") + ".py" in {part.path for part in parts}
    }
    listed = "".join(f'    "{n}",\n' for n in in_order_of_kind(each.name for each in names))
    text = header(parts, command).replace("in one file", "in one folder")
    files = {"__init__.py": f"{text}\n\n{render(names)}\n\n__all__ = [\n{listed}]\n"}
    files |= {part.path: part.source for part in parts}
    for name in {str(Path(part.path).parent) for part in parts} - {"."}:
        inner = Path(name, "__init__.py")
        files[str(inner)] = (PACKAGE / inner).read_text(encoding="utf-8")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
