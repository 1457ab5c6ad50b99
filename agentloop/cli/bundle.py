"""`agentloop bundle`: the core and the parts of your choice, as one file of your own."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from textwrap import fill, wrap
from typing import NamedTuple

from .parts import PACKAGE, Part, Refused, choose, in_order, read_package, version
from .terminal import reason

WIDTH = 100
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
    texts = {"header": header(parts, command), "imports": import_block(parts)}
    texts |= {part.path: part.text for part in parts} | {"yours": ""}
    number = version()
    return [Section(name, number, digest(text), text) for name, text in texts.items()]


def joined(sections: Iterable[Section]) -> str:
    return "\n\n".join(map(str, sections))


def header(parts: Sequence[Part], command: str, kind: str = "file") -> str:
    listed = (f"{part.path}: {part.sentence}" for part in parts)
    contents = [fill(line, 96, initial_indent="  ", subsequent_indent="      ") for line in listed]
    made_by = wrap(command, 90, break_on_hyphens=False, break_long_words=False)
    newer = """
`agentloop bundle --check FILE` says what you changed in it and what is newer in
agentloop; --upgrade gets that.
"""
    text = f"""\
An agent in one {kind}. It is yours: read it, edit it, add to it. Made by

  {f" {chr(92)}{chr(10)}      ".join(made_by)}
{newer * (kind == "file")}
{fill(f"It needs Python 3.11, {packages(parts)}.", 96)}

{chr(10).join(contents)}

{LICENSE}"""
    return "\n".join(f"# {line}".rstrip() for line in text.rstrip().split("\n"))


def packages(parts: Iterable[Part]) -> str:
    """What has to be installed for some parts."""
    found = {name for part in parts for name in part.packages}
    return ", ".join(sorted(found - sys.stdlib_module_names))


def import_block(parts: Sequence[Part]) -> str:
    """The imports of some parts as ruff sorts and formats them, and the lines that they share."""
    names: defaultdict[tuple[int, bool, str], list[str]] = defaultdict(list)
    for module, name in {each for part in parts for each in part.imports}:
        top = module.partition(".")[0]
        section = 0 if top == "__future__" else 1 if top in sys.stdlib_module_names else 2
        names[section, bool(name), module].append(name)
    blocks: defaultdict[int, list[str]] = defaultdict(list)
    for (section, is_from, module), unsorted in sorted(names.items()):
        found = sorted(unsorted, key=lambda n: (not n.isupper(), not n[:1].isupper(), n))
        line = f"from {module} import {', '.join(found)}" if is_from else f"import {module}"
        if len(line) > WIDTH:
            line = (
                "\n    ".join([f"from {module} import (", *(f"{name}," for name in found)]) + "\n)"
            )
        blocks[section].append(line)
    shared = sorted({line for part in parts for line in part.shared})
    return "\n\n".join("\n".join(lines) for lines in [*blocks.values(), shared]).rstrip()


# ---- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help="such as agent, session, openai: see --list")
    add("-o", "--output", metavar="PATH", help="a new file, my_agent.py, or the name of a folder")
    add("--force", action="store_true", help="replace an earlier bundle")
    add("--list", action="store_true", help="show the parts, and what each needs")
    add("--check", metavar="FILE", help="say what you changed in a bundle, and what is newer")
    add("--upgrade", metavar="FILE", help="replace the parts of a bundle that you did not change")


def run(options: argparse.Namespace) -> int:
    """Does what the arguments say; returns the exit status, 2 if nothing could be done."""
    from . import upgrade

    file = options.check or options.upgrade or options.output
    try:
        package = read_package()
        if options.check:
            return upgrade.check(Path(file), package)
        if options.upgrade:
            return upgrade.upgrade(Path(file), package)
        if options.list:
            print(listing(package))
            return 0
        if not (options.parts and file):
            raise Refused("Name the parts, and a file: bundle agent openai -o my_agent.py")
        parts = in_order(package, choose(package, options.parts))
        write(Path(file), parts, options.parts, options.force)
        print(f"{file} has {len(parts)} parts and needs {packages(parts)}.")
        return 0
    except BrokenPipeError:
        raise
    except (Refused, OSError, ValueError, SyntaxError) as error:
        why = f"{file}: {error}" if file and isinstance(error, Refused) else reason(error)
        print(why, file=sys.stderr)
        return 2


def listing(package: Mapping[str, Part]) -> str:
    core = {part.path for part in in_order(package, [])}
    lines = [
        f"{Path(part.path).stem:12}{part.sentence}\n{'':12}needs {part.copy_with}"
        for part in package.values()
        if part.path not in core
    ]
    loop = fill(", ".join(sorted(core)), 88, subsequent_indent=" " * 12)
    return "\n".join([f"{'core':12}Is always there: what Loop is made of.\n{'':12}{loop}", *lines])


def write(output: Path, parts: Sequence[Part], chosen: Sequence[str], force: bool) -> None:
    """Writes a bundle, over an earlier one only with `force`."""
    from .upgrade import replace_file, sections

    shown = output.name if output.is_absolute() else output.as_posix()
    command = f"agentloop bundle {' '.join(chosen)} -o {shown}"
    if output.suffix != ".py":
        write_folder(output, parts, command)
        return
    if output.exists():
        sections(output.read_text(encoding="utf-8"))  # never over anything but a bundle
        if not force:
            raise Refused("There is one already: --upgrade renews it, --force replaces it.")
    replace_file(output, joined(bundle(parts, command)))


def write_folder(folder: Path, parts: Sequence[Part], command: str) -> None:
    """Writes the parts as they are, as the files of a package."""
    if not folder.name.isidentifier():
        raise Refused("A file ends in .py, and a folder has a name to import: my_agent.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused("It is there already; a folder has to be new or empty.")
    files = {part.path: part.source for part in parts}
    for name in {Path(path).parent for path in files} - {Path()}:
        inner = (name / "__init__.py").as_posix()
        files[inner] = (PACKAGE / inner).read_text(encoding="utf-8")
    files["__init__.py"] = header(parts, command, "folder") + "\n"
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", newline="\n")
