"""`agentloop bundle`: the core and the parts of your choice, as one file or a folder of your own.

A part is a file of the package. In a bundle it keeps its text, but for the imports of other parts,
which stand above it: so a name has one meaning in all parts. It is untouched if it still has the
hash of its marker line. An upgrade replaces such parts and no others. It writes nothing as long as
a part that you changed is newer, too.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from .. import __version__
from .terminal import safe

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = ["", "mixins", "models", "toolkits"]  # in the order in which one reads them
INNER = r"^ *from (?:__future__|\.+[\w.]+) import (?:\([^)]*\)|.*)\n"  # what a bundle leaves out
LEFT_OUT = f"(?m)^if TYPE_CHECKING:\n(?:{INNER})+|(?<=:\n)(?:{INNER})+\n|{INNER}"
IMPORTED = r"(?m)^ *(?:import|from(?= \S+ import )) (\w+)"
HEADER = """\
An agent that is yours: read it, edit it, add to it. Made by agentloop {}.
It needs Python 3.11, {}.
`agentloop bundle --check FILE` says what you changed in a file, and what is newer in agentloop;
--upgrade gets that.

{}

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
SOFTWARE."""
TOP = """

# Each part keeps its own imports.
# ruff: noqa: E402, E501, F811, I001

from __future__ import annotations"""


MARK = re.compile(r"^# ==== (\S+) ==== sha256 (\w+)$", re.M)
SHIPPED, CHANGED, NEWER = "as shipped", "changed by you", "newer upstream"
BOTH = f"{CHANGED}, and {NEWER}"
TAKE = f"""\
{{}}: {BOTH}. When you have taken what you want of the following,
put {{}} behind sha256 in its marker line, and upgrade again."""


class Part:
    """A file of the package, such as "mixins/done.py". It is read, and never imported.

    text: what a bundle has of it. needs: the parts that it imports. tokens: how long its code is.
    """

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source
        docstring = ast.get_docstring(ast.parse(source)) or ""
        self.sentence, _, rest = docstring.partition("\n\nCopy with: ")
        self.copy_with = " ".join(rest.partition("\n\n")[0].split())
        self.needs: list[str] = []
        for dots, module in re.findall(r"(?m)^ *from (\.+)(\S+) import ", source):
            place = [*path.split("/")[: -len(dots)], f"{module.replace('.', '/')}.py"]
            self.needs.append("/".join(place))
        self.text = re.sub("\n{4,}", "\n\n\n", re.sub(LEFT_OUT, "", source)).strip("\n")
        words = (t.string.strip() for t in tokenize.generate_tokens(io.StringIO(source).readline))
        self.tokens = sum(word != "" and not word.startswith(("#", '"""')) for word in words)


def read_package(folder: Path = PACKAGE) -> dict[str, Part]:
    """The parts, by their paths, in the order in which one reads them."""
    files = [path for name in FOLDERS for path in sorted((folder / name).glob("[!_]*.py"))]
    names = [path.relative_to(folder).as_posix() for path in files]
    return {name: Part(name, (folder / name).read_text("utf-8")) for name in names}


def choose(package: Mapping[str, Part], names: Iterable[str] = ()) -> list[Part]:
    """The core, the parts of these names and all that they need, each behind what it needs.

    A name is "done", "mixins/done" or "mixins/done.py".
    """
    chosen: dict[str, Part] = {}

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


# ---- the bundle


class Section(NamedTuple):
    """A piece of a bundle, with the hash of its text as it was written."""

    hash: str
    text: str

    def is_touched(self) -> bool:
        return section(self.text).hash != self.hash


def section(text: str) -> Section:
    return Section(sha256(text.encode()).hexdigest()[:16], text)


def bundle(parts: Sequence[Part]) -> dict[str, Section]:
    """The sections of a bundle, by name. "yours" is for what people add."""
    sections = {part.path: section(part.text) for part in parts}
    return {"header": section(header(parts) + TOP)} | sections | {"yours": section("")}


def joined(sections: Mapping[str, Section]) -> str:
    """The text of a bundle, each section below its marker line."""
    texts = (
        f"# ==== {name} ==== sha256 {hash}\n{text}".rstrip() + "\n"
        for name, (hash, text) in sections.items()
    )
    return "\n\n".join(texts)


def header(parts: Sequence[Part]) -> str:
    contents = "\n".join(f"  {part.path}: {part.sentence}" for part in parts)
    text = HEADER.format(__version__, packages_of(parts), contents)
    return "\n".join(f"# {line}".rstrip() for line in text.split("\n"))


def packages_of(parts: Sequence[Part]) -> str:
    """What has to be installed for some parts."""
    found = {name for part in parts for name in re.findall(IMPORTED, part.text)}
    return ", ".join(sorted(found - sys.stdlib_module_names))


# ---- what became of a bundle


def read_bundle(
    path: Path, package: Mapping[str, Part]
) -> tuple[str, dict[str, Section], dict[str, Section]]:
    """What a bundle has before its first marker line, its sections, and what they would be now."""
    start, *pieces = MARK.split(text := path.read_text(encoding="utf-8"))
    thirds = zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    old = {name: Section(hash, body.strip("\n")) for name, hash, body in thirds}
    if not {"header", "yours"} <= {*old} or len(old) < len(re.findall("^# ====", text, re.M)):
        raise ValueError(f"{path} is no bundle, or a marker line in it was changed.")
    return start, old, bundle(choose(package, [name for name in old if name in package]))


def states(old: Mapping[str, Section], now: Mapping[str, Section]) -> dict[str, str]:
    """What became of each section, by name."""
    found = dict.fromkeys(now, f"{NEWER}, and missing here") | dict.fromkeys(old, "gone upstream")
    for name in {*old} & {*now}:
        ours, theirs = old[name], now[name]
        words = [CHANGED] * ours.is_touched() + [NEWER] * (ours.hash != theirs.hash)
        found[name] = SHIPPED if ours.text == theirs.text else ", and ".join(words)
    return found


def check(path: Path, package: Mapping[str, Part]) -> tuple[str, int]:
    """What became of each section; the status is 1 if any part is not as shipped."""
    _, old, now = read_bundle(path, package)
    yours = f"{len(old.pop('yours').text.splitlines())} lines"
    del now["yours"]
    found = states(old, now)
    rows = [f"{name:24}{what}" for name, what in (found | {"yours": yours}).items()]
    return "\n".join(rows), int({*found.values()} != {SHIPPED})


def upgrade(path: Path, package: Mapping[str, Part]) -> tuple[str, int]:
    """Writes the newer parts, unless one that you changed is newer, too: then the status is 1."""
    start, old, now = read_bundle(path, package)
    found = states(old, now)
    both = list[str]()
    for name in (name for name in found if found[name] == BOTH):
        texts = old[name].text.splitlines(), now[name].text.splitlines()
        diff = unified_diff(*texts, f"yours/{name}", f"newer/{name}", lineterm="")
        both += [TAKE.format(name, now[name].hash), *diff]
    said = [f"{name}: {what}" for name, what in found.items() if what not in (SHIPPED, CHANGED)]
    if said and not both:
        mine = {name: section for name, section in old.items() if section.is_touched()}
        path.write_text(start + joined(now | mine), encoding="utf-8", newline="\n")
    return "\n".join(both or said) or "There is nothing newer.", int(bool(both))


# ---- the command


def add_options(add: Callable[..., object]) -> None:
    add("parts", nargs="*", metavar="PART", help="such as agent, session, openai: see --list")
    add("-o", "--output", metavar="PATH", help="a new file, my_agent.py, or a new folder, my_agent")
    add("--list", action="store_true", help="show the parts, what each weighs, and what it needs")
    add("--check", metavar="FILE", help="say what you changed in a bundle, and what is newer")
    add("--upgrade", metavar="FILE", help="replace the parts of a bundle that you did not change")


def run(options: argparse.Namespace) -> int:
    """Does what the arguments say; returns the exit status, 2 if nothing could be done."""
    package, status = read_package(), 0
    if options.check:
        said, status = check(Path(options.check), package)
    elif options.upgrade:
        said, status = upgrade(Path(options.upgrade), package)
    elif options.parts and options.output:
        parts = choose(package, options.parts)
        write(Path(options.output), parts)
        said = f"{options.output} has {len(parts)} parts and needs {packages_of(parts)}."
    elif options.list:
        said = listing(package)
    else:
        raise ValueError("Name the parts, and a file: bundle agent openai -o my_agent.py")
    print(safe(said))
    return status


def write(path: Path, parts: Sequence[Part]) -> None:
    """Writes a bundle: a file if the name ends in .py, else a folder with the parts as they are."""
    if path.exists():
        raise ValueError(f"There is {path} already: --upgrade renews a file.")
    files = {path: joined(bundle(parts))}
    if path.suffix != ".py":
        files = {path / part.path: part.source for part in parts}
        files[path / "__init__.py"] = header(parts) + "\n"
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")


def listing(package: Mapping[str, Part]) -> str:
    """Each part: its weight, what it is, and what it needs."""
    core = choose(package)
    return "\n".join(
        f"{part.path:22}{part.tokens:6,} tokens  {part.sentence}\n"
        f"{'':22}{'always there' if part in core else f'needs {part.copy_with}'}"
        for part in package.values()
    )
