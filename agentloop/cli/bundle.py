"""`python -m agentloop bundle`: the core and the parts of your choice, as one file of your own."""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from textwrap import fill, indent, wrap
from typing import NamedTuple

from .parts import (
    FUTURE,
    PACKAGE,
    TYPE_CHECKING,
    Import,
    Part,
    Refused,
    choose,
    in_order,
    read_package,
    version,
)

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
    imports = {each for part in parts for each in part.imports}
    typing = {each for part in parts for each in part.typing}
    block = import_block(imports, typing, {line for part in parts for line in part.shared})
    texts = {"header": header(parts, command), "imports": block}
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
`python -m agentloop bundle --check FILE` says what you changed in it and what is newer in
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
        kinds = [each == FUTURE, top in sys.stdlib_module_names, each.module[0] != ".", True]
        groups[kinds.index(True), bool(each.name), each.module, each.alias].append(each.name)
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
    text = header(parts, command, "folder")
    files = {"__init__.py": f"{text}\n\n{render(names)}\n\n__all__ = [\n{listed}]\n"}
    files |= {part.path: part.source for part in parts}
    for name in {str(Path(part.path).parent) for part in parts} - {"."}:
        inner = Path(name, "__init__.py")
        files[str(inner)] = (PACKAGE / inner).read_text(encoding="utf-8")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


# ---- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help="such as agent, session, openai: see --list")
    add("-o", "--output", metavar="PATH", help="a new file, my_agent.py, or the name of a folder")
    add("--force", action="store_true", help="replace an earlier bundle that you changed")
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
    except (Refused, OSError, SyntaxError) as error:
        print(f"{file}: {error}" if file and isinstance(error, Refused) else error, file=sys.stderr)
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
    """Writes a bundle, over an earlier one if nothing was changed in that, or with `force`."""
    from .upgrade import read_bundle, replace_file, sections, touched

    shown = output.name if output.is_absolute() else output.as_posix()
    command = f"python -m agentloop bundle {' '.join(chosen)} -o {shown}"
    if output.suffix != ".py":
        if not output.name.isidentifier():
            raise Refused("A file ends in .py, and a folder has a name to import: my_agent.")
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise Refused("It is there already; a folder has to be new or empty.")
        write_folder(output, parts, command)
        return
    text = joined(bundle(parts, command))
    if output.exists():
        start, found = sections(read_bundle(output)[0])  # never anything but a bundle
        if not force and (start.strip() or found[-1].text or any(map(touched, found))):
            raise Refused("You changed it: see --check and --upgrade, or give --force.")
        replace_file(output, text.encode())
    else:
        with output.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
