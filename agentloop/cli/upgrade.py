"""`python -m agentloop bundle --check` and `--upgrade`: what became of a bundle, and what is newer.

A part is untouched if its text still has the hash of its marker line. An upgrade replaces such
parts and no others, and writes nothing where it cannot know that the result is whole.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path

from .bundle import Section, bundle, digest, import_block, joined
from .parts import Part, Refused, bound, in_order, take_apart

MARK = re.compile(r"# ==== (\S+) ==== agentloop (\S+), sha256 ([0-9a-f]{16})")
SHIPPED, CHANGED, NEWER = "as shipped", "changed by you", "newer upstream"


def read_bundle(path: Path) -> tuple[str, str]:
    """A file's text, with its line ends as "\\n", and what they are in the file."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise Refused("It is not UTF-8.") from None
    windows = text.count("\r\n")
    if text.count("\r") != windows or windows not in (0, text.count("\n")):
        raise Refused("It has line ends of two kinds.")
    return text.replace("\r\n", "\n"), "\r\n" if windows else "\n"


def sections(text: str) -> tuple[str, list[Section]]:
    """What stands before a bundle's first marker line, and its sections.

    Refused: they are not those that the header lists, in that order.
    """
    start, *pieces = re.split(r"^(# ====.*)$", text, flags=re.M)
    if not pieces:
        raise Refused("This is not a bundle: it has no marker lines.")
    found: list[Section] = []
    for mark, body in zip(pieces[::2], pieces[1::2], strict=True):
        if not (parsed := MARK.fullmatch(mark)):
            raise Refused(f"This marker line was changed: {mark}")
        name, version, hash = parsed.groups()
        found.append(Section(name, version, hash, body.strip("\n")))
    names = Counter(section.name for section in found)
    listed = Counter(["header", *listed_parts(found[0].text), "imports", "yours"])
    for what, which in ("missing", listed - names), ("there twice or unknown", names - listed):
        if which:
            raise Refused(f"Marker lines are {what}: {', '.join(which)}.")
    order = ["header", "imports", *listed_parts(found[0].text), "yours"]
    if [section.name for section in found] != order:
        raise Refused("Its parts are not in the order in which its header lists them.")
    return start, found


def listed_parts(header: str) -> list[str]:
    return re.findall(r"^#   (\S+\.py): ", header, re.M)


def as_of_now(package: Mapping[str, Part], found: Sequence[Section]) -> list[Section]:
    """What `bundle` would write for the parts of a bundle."""
    header = found[0].text
    command = re.sub(r"\s*\\\n#\s*", " ", header).partition("\n#   ")[2].partition("\n")[0]
    paths = [path for path in listed_parts(header) if path in package]
    return bundle(in_order(package, paths), command)


def touched(section: Section) -> bool:
    return digest(section.text) != section.hash


def states(package: Mapping[str, Part], found: Sequence[Section]) -> dict[str, str]:
    """Of each section, and of each part that is needed now, what became of it."""
    old, new = (
        {each.name: each for each in sections} for sections in (found, as_of_now(package, found))
    )
    out: dict[str, str] = {}
    for name in [*old, *(new.keys() - old)]:
        if name == "yours":
            continue
        if name not in new:
            out[name] = "gone upstream"
        elif name not in old:
            out[name] = f"{NEWER}, and missing here"
        else:
            ours, theirs = old[name], new[name]
            same = ours.text == theirs.text
            words = [CHANGED] * touched(ours) + [NEWER] * (ours.hash != theirs.hash)
            out[name] = SHIPPED if same or not words else ", and ".join(words)
    return out


def upgraded(package: Mapping[str, Part], text: str) -> tuple[str, list[str]]:
    """A bundle's text with the newer parts in it, and what is to be said about them.

    Refused: the result might not be whole.
    """
    start, found = sections(text)
    fresh = as_of_now(package, found)
    if numbers(found[0].version) > numbers(fresh[0].version):
        raise Refused(f"It is of agentloop {found[0].version}, and this is {fresh[0].version}.")
    state = states(package, found)
    if gone := [name for name in state if name not in {each.name for each in fresh}]:
        raise Refused(f"These parts are gone upstream: {', '.join(gone)}.")
    if CHANGED in state["header"]:
        raise Refused("Its header was changed: put your own words above it.")
    old = {each.name: each for each in found}
    done, left, new = list[str](), list[str](), list[Section]()
    for each in fresh:
        ours = old.get(each.name, each)
        stays = each.name == "yours" or CHANGED in state[each.name]
        new.append(ours if stays else each)
        if each.name in package and NEWER in state[each.name]:
            if stays:
                left += difference(ours, each)
            else:
                done.append(f"{each.name}: {'added' if ours is each else 'replaced'}")
    mine = [each for each in new if touched(each)] + [Section("", "", "", start), old["yours"]]
    new[1] = merged(old["imports"], fresh[1], used(mine))
    if problem := what_is_missing(found, new, fresh, mine):
        raise Refused("\n".join([problem, *left]))
    return start + joined(new), done + left


def numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def difference(ours: Section, theirs: Section) -> list[str]:
    """What to say of a part that is changed and newer: how to get from yours to that."""
    old, new = ours.text.splitlines(), theirs.text.splitlines()
    return [
        f"{ours.name}: {CHANGED}, and {NEWER}, so it stays as it is. When you have taken what you "
        f"want of the following, put sha256 {theirs.hash} into its marker line.",
        *unified_diff(old, new, f"yours/{ours.name}", f"newer/{ours.name}", lineterm=""),
    ]


def merged(ours: Section, theirs: Section, used: set[str]) -> Section:
    """The imports of now, and of the earlier ones those that may be used by what is yours."""
    old, new = (take_apart("imports", section.text, ()) for section in (ours, theirs))
    if old.text:
        if ours.hash == theirs.hash:
            return ours
        raise Refused("You added more than imports to its imports, and newer parts need others.")
    mine = touched(ours)
    imports = new.imports | {each for each in old.imports if mine or each.binds in used}
    typing = new.typing | {each for each in old.typing if mine or each.binds in used}
    shared = new.shared | {line for line in old.shared if mine or line.split()[0] in used}
    bindings = Counter(each.binds for each in imports)
    if twice := [name for name, times in bindings.items() if times > 1]:
        raise Refused(f"You import {', '.join(twice)} from elsewhere than the newer parts do.")
    return theirs._replace(text=import_block(imports, typing, shared))


def nodes(sections: Iterable[Section]) -> Iterator[ast.AST]:
    for section in sections:
        yield from ast.walk(ast.parse(section.text, section.name))


def defined(sections: Iterable[Section]) -> set[str]:
    """The names that some sections give a meaning to, anywhere in them."""
    names = set[str]()
    for node in nodes(sections):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def used(sections: Iterable[Section]) -> set[str]:
    names = set[str]()
    for node in nodes(sections):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.keyword):
            names.add(node.arg or "")
    return names


def what_is_missing(
    old: Sequence[Section],
    new: Sequence[Section],
    fresh: Sequence[Section],
    mine: Sequence[Section],
) -> str | None:
    """Why `new` would not be whole: what is yours and what is newer have to fit by their names."""
    here, newer = defined([*new, *mine]), [each for each in new if not touched(each)]
    if lost := (defined(old) - here) & used(mine):
        return f"What you changed or added uses what is gone upstream: {', '.join(sorted(lost))}."
    if lacking := (defined(fresh) - here) & (used(newer) - used(old)):
        names = ", ".join(sorted(lacking))
        return f"The newer parts need what those that you changed do not have: {names}."
    was, now = (
        Counter(name for each in sections for name in set(bound([ast.parse(each.text)])))
        for sections in (old, new)
    )
    if twice := sorted(name for name in now if now[name] > max(1, was[name])):
        return f"What you changed or added has names of newer parts: {', '.join(twice)}."
    return None


def replace_file(path: Path, data: bytes) -> None:
    """Gives a file other contents, at once or not at all; it keeps its mode."""
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def check(path: Path, package: Mapping[str, Part]) -> int:
    """Prints what became of each part; returns 1 if any is not as shipped."""
    found = sections(read_bundle(path)[0])[1]
    state = states(package, found)
    for name, what in state.items():
        print(f"{name:24}{what}")
    return int(any(what != SHIPPED for what in state.values()))


def upgrade(path: Path, package: Mapping[str, Part]) -> int:
    """Replaces the untouched parts by newer ones; returns 1 if others are newer upstream too."""
    text, newline = read_bundle(path)
    new, said = upgraded(package, text)
    print("\n".join(said) or "There is nothing newer.")
    if new != text:
        replace_file(path, new.replace("\n", newline).encode())
    return int(any(CHANGED in line for line in said))
