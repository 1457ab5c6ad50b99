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
from collections.abc import Mapping, Sequence
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
        raise Refused(f"{path} is not UTF-8.") from None
    windows = text.count("\r\n")
    if text.count("\r") != windows or windows not in (0, text.count("\n")):
        raise Refused(f"{path} has line ends of two kinds.")
    return text.replace("\r\n", "\n"), "\r\n" if windows else "\n"


def sections(text: str) -> tuple[str, list[Section]]:
    """What stands before a bundle's first marker line, and its sections.

    Refused: they are not those that the header lists, in that order.
    """
    start, *pieces = re.split(r"^(# ====.*)$", text, flags=re.M)
    if not pieces:
        raise Refused("It is not a bundle: it has no marker lines.")
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
    said, new = list[str](), list[Section]()
    for each in fresh:
        ours = old.get(each.name, each)
        if each.name == "yours" or CHANGED in state[each.name]:
            new.append(ours)
        else:
            new.append(each)
        if each.name not in ("header", "imports", "yours") and NEWER in state[each.name]:
            said += report(ours, each, state[each.name])
    kept = [each.text for each in new if touched(each)]
    mine = "\n".join([start, *kept, old["yours"].text])
    new[1] = merged(old["imports"], fresh[1], words(mine))
    result = start + joined(new)
    refuse_unless_whole(package, found, new, words(mine))
    return result, said


def numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def report(ours: Section, theirs: Section, state: str) -> list[str]:
    """What happens to a part, and of one that stays as it is: what is newer, as a diff."""
    if CHANGED not in state:
        return [f"{theirs.name}: {'added' if ours is theirs else 'replaced'}"]
    to = f"{theirs.name} of agentloop {theirs.version}, sha256 {theirs.hash}"
    diff = unified_diff(
        ours.text.splitlines(), theirs.text.splitlines(), f"{ours.name}, yours", to, lineterm=""
    )
    return [f"{theirs.name}: {state}, so it stays as it is; from yours to the newer one:", *diff]


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


def refuse_unless_whole(
    package: Mapping[str, Part], old: Sequence[Section], new: Sequence[Section], used: set[str]
) -> None:
    """Refused: what is yours lacks something now, or the newer parts would."""
    was, now = (
        Counter(n for each in found for n in set(bound([ast.parse(each.text)])))
        for found in (old, new)
    )
    if lost := (was.keys() - now.keys()) & used:
        raise Refused(f"What you changed or added uses what is gone upstream: {', '.join(lost)}.")
    if twice := [name for name in now if now[name] > max(1, was[name])]:
        raise Refused(f"What you changed or added has names of newer parts: {', '.join(twice)}.")
    for each in new:
        if not touched(each) and (
            lacking := package[each.name].wants - now.keys() if each.name in package else ()
        ):
            raise Refused(
                f"The newer {each.name} needs what the parts that you changed do not have: "
                f"{', '.join(sorted(lacking))}."
            )


def replace_file(path: Path, data: bytes) -> None:
    """Gives a file other contents, at once or not at all; it keeps its mode."""
    path = path.resolve()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
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
