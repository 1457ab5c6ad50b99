"""`agentloop bundle`: the core and the parts of your choice, as one file of your own.

A part is a file of the package. In a bundle it keeps its text, but for the imports of other parts,
which stand above it: so a name has one meaning in all parts. A file beside the bundle keeps what
was shipped, so that git can merge what is newer into what you changed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from .. import __version__
from ..common.tokens import count_tokens
from .terminal import safe

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = ["", "common", "mixins", "models", "toolkits"]  # in the order in which one reads them
DOCSTRING = re.compile(r'"""(.*?)\n\nCopy with: ', re.DOTALL)
NEEDED = r"(?m)^ *from (\.+)(\S+) import "
IMPORTED = r"(?m)^ *(?:import|from(?= \S+ import )) (\w+)"
INNER = r"^ *from (?:__future__|\.+[\w.]+) import (?:\([^)]*\)|.*)\n"  # what a bundle leaves out
LEFT_OUT = f"(?m)^if TYPE_CHECKING:\n(?:{INNER})+|(?<=:\n)(?:{INNER})+\n|{INNER}"
HEADER = """\
# An agent that is yours: read it, edit it, add to it. Made by agentloop {}.
# It needs Python 3.11, {}. Your own code stands behind the line `# ==== yours`.
# `agentloop bundle --upgrade FILE` merges what is newer in agentloop into what you changed.
#
{}
#
# MIT License
#
# Copyright (c) 2026 The agentloop authors
#
# Permission is hereby granted, free of charge, to any person obtaining a copy
# of this software and associated documentation files (the "Software"), to deal
# in the Software without restriction, including without limitation the rights
# to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
# copies of the Software, and to permit persons to whom the Software is
# furnished to do so, subject to the following conditions:
#
# The above copyright notice and this permission notice shall be included in all
# copies or substantial portions of the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
# IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
# FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
# AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
# LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
# OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
# SOFTWARE.

# Each part keeps its own imports, and no formatter changes it: `# fmt: on` is for your code.
# ruff: noqa: E402, E501, F811, I001
# fmt: off

from __future__ import annotations"""
SHIPPED = ".shipped"  # of the file that keeps a bundle as it was shipped
LISTED = r"(?m)^#   (\S+\.py): "  # the parts in a header


class Part:
    """A file of the package, such as "mixins/done.py". It is read, and never imported.

    text: what a bundle has of it. needs: the parts that it imports.
    """

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source
        [self.sentence] = DOCSTRING.findall(source)
        self.text = re.sub("\n{4,}", "\n\n\n", re.sub(LEFT_OUT, "", source)).strip("\n")
        self.needs = [
            str(PurePosixPath(path).parents[len(dots) - 1] / f"{module.replace('.', '/')}.py")
            for dots, module in re.findall(NEEDED, source)
        ]


def read_package(folder: Path = PACKAGE) -> dict[str, Part]:
    """Return the parts, by their paths, in the order in which one reads them."""
    files = [file for name in FOLDERS for file in sorted((folder / name).glob("[!_]*.py"))]
    parts = (Part(file.relative_to(folder).as_posix(), file.read_text("utf-8")) for file in files)
    return {part.path: part for part in parts}


def choose(package: Mapping[str, Part], names: Iterable[str] = ()) -> list[Part]:
    """Return the core, the parts of these names and all that they need, dependencies first.

    A name is "done", "mixins/done" or "mixins/done.py".
    """
    chosen = dict[str, Part]()

    def add(path: str) -> None:
        if path not in chosen:
            for each in package[path].needs:
                add(each)
            chosen[path] = package[path]

    for name in ["loop", *names]:
        found = [path for path in package if f"/{path}".endswith(f"/{name.removesuffix('.py')}.py")]
        if len(found) != 1:
            raise ValueError(f"There is no part {name!r}: see --list.")
        add(found[0])
    return [*chosen.values()]


def bundle(parts: Sequence[Part]) -> str:
    """Return the text of a bundle: each part below a line with its name, then room for yours."""
    contents = "\n".join(f"#   {part.path}: {part.sentence}" for part in parts)
    pieces = [HEADER.format(__version__, packages_of(parts), contents)]
    pieces += [f"# ==== {part.path} ====\n{part.text}" for part in parts]
    return "\n\n\n".join([*pieces, "# ==== yours ====\n"])


def packages_of(parts: Sequence[Part]) -> str:
    """Return the names of the packages that some parts need, as a list in words."""
    found = {name for part in parts for name in re.findall(IMPORTED, part.text)}
    return ", ".join(sorted(found - sys.stdlib_module_names))


def origins(parts: Sequence[Part], core: Sequence[Part]) -> str:
    """Return a table of the lines of each part outside the core, and of the parts that import it.

    A part without an importer was named by the user.
    """
    paths = {part.path for part in core}
    rows = [(str(sum(lines_of(part) for part in core)), f"the core: {len(core)} parts", "")]
    for part in parts:
        if part.path not in paths:
            importers = [other.path for other in parts if part.path in other.needs]
            rows.append((str(lines_of(part)), part.path, ", ".join(importers)))
    table = [f"{'lines':>5}  {'part':24}imported by"]
    table += [f"{lines:>5}  {path:24}{importers}".rstrip() for lines, path, importers in rows]
    return "\n".join(table)


def lines_of(part: Part) -> int:
    """Return the number of lines that a part has in a bundle."""
    return part.text.count("\n") + 1


def main(options: argparse.Namespace) -> int:
    """Write the core and the parts that you name as one file of your own.

    parts PART...   such as agent, session, openai: see --list
    -o FILE         the new file, such as my_agent.py; without it you see how large it would be
    --list          show the parts, and what each weighs; what one needs comes with it
    --upgrade FILE  merge what is newer into a bundle that you changed, and add parts
    """
    package = read_package()
    if options.upgrade:
        return upgrade(package, Path(options.upgrade), options.parts)
    if options.list:
        for part in package.values():
            print(f"{part.path:22}{count_tokens(part.text):6,} tokens  {part.sentence}")
    elif options.parts:
        parts = choose(package, options.parts)
        text = bundle(parts)
        lines = text.count("\n")
        size = f"{len(parts)} parts, {lines:,} lines, {count_tokens(text):,} tokens"
        if options.o:
            path = Path(options.o)
            path.touch(exist_ok=False)  # what is there stays
            write(path, text)
            write(path.with_suffix(SHIPPED), text)
        print(safe(f"{options.o or 'It'} has {size}, and needs {packages_of(parts)}."))
        print(origins(parts, choose(package)))
    else:
        raise ValueError("Name the parts, and a file: bundle agent openai -o my_agent.py")
    return 0


def write(path: Path, text: str) -> None:
    """Write a text with the same line ends on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")


def upgrade(package: Mapping[str, Part], path: Path, more: Sequence[str]) -> int:
    """Merge what is newer into a bundle, and add parts. Return 1 if changes clash."""
    base = path.with_suffix(SHIPPED)
    names = [name for name in re.findall(LISTED, base.read_text("utf-8")) if name in package]
    newer = path.with_suffix(".newer")
    write(newer, bundle(choose(package, [*names, *more])))
    clashes = subprocess.run(["git", "merge-file", path, base, newer]).returncode
    newer.replace(base)
    said = "has changes that clash: look for <<<<<<<" if clashes else "is up to date"
    print(safe(f"{path} {said}."))
    return 1 if clashes else 0
