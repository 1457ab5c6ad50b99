"""`agentloop bundle --check` and `--upgrade`: what became of a bundle, and what is newer.

A part is untouched if its text still has the hash of its marker line. An upgrade replaces such
parts and no others, and writes nothing where it cannot know that the result is whole.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from symtable import symtable

from .bundle import Section, bundle, digest, joined
from .parts import Part, Refused, in_order

MARK = re.compile(r"# ==== ([\w./]+) ==== agentloop (\S+), sha256 ([0-9a-f]{16})")
SHIPPED, CHANGED, NEWER = "as shipped", "changed by you", "newer upstream"


def sections(text: str) -> tuple[str, list[Section]]:
    """What stands before a bundle's first marker line, and its sections."""
    start, *pieces = re.split(r"^(# ====.*)$", text, flags=re.M)
    found: list[Section] = []
    for mark, body in zip(pieces[::2], pieces[1::2], strict=True):
        if not (parsed := MARK.fullmatch(mark)):
            raise Refused(f"This marker line was changed: {mark!r}")
        name, number, hash = parsed.groups()
        found.append(Section(name, number, hash, body.strip("\n")))
    names = [section.name for section in found]
    if names[:1] != ["header"] or len({*names}) < len(names):
        raise Refused("This is not a bundle: it has no header, or a marker line twice.")
    return start, found


def as_of_now(package: Mapping[str, Part], found: Sequence[Section]) -> list[Section]:
    """What `bundle` would write for the parts of a bundle."""
    unwrapped = re.sub(r"\s*\\\n#\s*", " ", found[0].text)
    command = unwrapped.partition("\n#   ")[2].partition("\n")[0]
    return bundle(in_order(package, [s.name for s in found if s.name in package]), command)


def touched(section: Section) -> bool:
    return digest(section.text) != section.hash


def states(package: Mapping[str, Part], found: Sequence[Section]) -> dict[str, str]:
    """Of each section, and of each part that is needed now, what became of it."""
    old = {each.name: each for each in found}
    new = {each.name: each for each in as_of_now(package, found)}
    out: dict[str, str] = {}
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            out[name] = "gone upstream"
        elif name not in old:
            out[name] = f"{NEWER}, and missing here"
        elif name != "yours":
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
    fresh, state = as_of_now(package, found), states(package, found)
    if numbers(found[0].version) > numbers(fresh[0].version):
        raise Refused(f"It is of agentloop {found[0].version}, and this is {fresh[0].version}.")
    if gone := [name for name in state if state[name] == "gone upstream"]:
        raise Refused(f"These parts are gone upstream: {', '.join(gone)}.")
    old = {each.name: each for each in found}
    new, said = list[Section](), list[str]()
    for each in fresh:
        ours, what = old.get(each.name, each), state.get(each.name, CHANGED)
        new.append(ours if CHANGED in what else each)
        if CHANGED in what and NEWER in what:
            said += difference(ours, each)
            if each.name not in package:
                raise Refused("\n".join(said))
        elif NEWER in what:
            said.append(f"{each.name}: {'added' if ours is each else 'replaced'}")
    if (start.strip() or any(map(touched, new))) and (problem := misfit(start, found, new, fresh)):
        raise Refused("\n".join([problem, *said]))
    return start + joined(new) if said else text, said


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


def misfit(
    start: str, old: Sequence[Section], new: Sequence[Section], fresh: Sequence[Section]
) -> str | None:
    """Why `new` would not be whole: what is yours and what is newer have to fit by their names."""
    mine = [start, *(each.text for each in new if touched(each))]
    newer = [each.text for each in new if not touched(each)]
    defined, _ = names([*mine, *newer])
    lost = (names(each.text for each in old)[0] - defined) & names(mine)[1]
    lacking = (names(each.text for each in fresh)[0] - defined) & names(newer)[1]
    if lost or lacking:
        what = ", ".join(sorted(lost | lacking))
        return f"What is yours and what is newer do not fit; this would be missing: {what}."
    was, now = (
        Counter(
            symbol.get_name()
            for each in sections
            for symbol in symtable(each.text, each.name, "exec").get_symbols()
            if symbol.is_assigned()
        )
        for sections in (old, new)
    )
    if twice := sorted(name for name in now if now[name] > max(1, was[name])):
        return f"What you changed or added has names of newer parts: {', '.join(twice)}."
    return None


def names(texts: Iterable[str]) -> tuple[set[str], set[str]]:
    """The names that some texts give a meaning to, anywhere in them, and those that they use."""
    defined, used = set[str](), set[str]()
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined.add(node.name)
            case ast.arg(arg=name):
                defined.add(name)
            case ast.alias():
                defined.add(node.asname or node.name.partition(".")[0])
            case ast.Name(id=name) | ast.Attribute(attr=name):
                (used if isinstance(node.ctx, ast.Load) else defined).add(name)
            case ast.keyword(arg=str(name)):
                used.add(name)
            case _:
                pass
    return defined, used


def replace_file(path: Path, text: str) -> None:
    """Gives a file these contents, at once or not at all; it keeps its mode."""
    path = path.resolve()
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8", newline="\n")
    if path.exists():
        shutil.copymode(path, new)
    os.replace(new, path)


def check(path: Path, package: Mapping[str, Part]) -> int:
    """Prints what became of each part; returns 1 if any is not as shipped."""
    found = sections(path.read_text(encoding="utf-8"))[1]
    state = states(package, found)
    for name, what in state.items():
        print(f"{name:24}{what}")
    own = next((section.text for section in found if section.name == "yours"), "")
    print(f"{'yours':24}{len(own.splitlines())} lines")
    return int(any(what != SHIPPED for what in state.values()))


def upgrade(path: Path, package: Mapping[str, Part]) -> int:
    """Replaces the untouched parts by newer ones; returns 1 if others are newer upstream too."""
    text = path.read_text(encoding="utf-8")
    new, said = upgraded(package, text)
    print("\n".join(said) or "There is nothing newer.")
    if new != text:
        replace_file(path, new)
    return int(any(CHANGED in line for line in said))
