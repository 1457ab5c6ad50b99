"""Takes a docstring apart: what a function does, and what each of its parameters means.

Copy with: nothing else.

Reads the Google style ("Args:"), the NumPy style ("Parameters" over dashes) and the Sphinx style
(":param x: ..."). A docstring in none of them is all description.
"""

from __future__ import annotations

import inspect
import re
from itertools import takewhile

_PARAMETERS = r"(?:Other |Keyword )?(?:Args|Arguments|Params|Parameters)"
_OTHERS = r"(?:Returns?|Yields?|Raises|Receives|Warns)"
_GOOGLE = re.compile(rf"({_PARAMETERS}|{_OTHERS}):$")
_NUMPY = re.compile(rf"({_PARAMETERS}|{_OTHERS})$")
_SPHINX = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|yields?)\b[^:]*:"
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(.*)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX_ENTRY = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s[^:]*?(\w+)\s*:(.*)")


def parse_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The text before the first section of a docstring, and the text of each parameter.

    A parameter's text is folded into one line.
    """
    lines = inspect.cleandoc(doc or "").splitlines()
    starts = [i for i in range(len(lines)) if _section(lines, i)]
    description = "\n".join(lines[: starts[0]] if starts else lines).strip()
    entries: dict[str, list[str]] = {}
    for start in starts:
        kind = _section(lines, start)
        if kind == "sphinx":
            if match := _SPHINX_ENTRY.match(lines[start]):
                rest = takewhile(lambda line: line and line[0] != ":", lines[start + 1 :])
                entries[match[1]] = [match[2], *rest]
        elif re.match(_PARAMETERS, lines[start]):
            entries |= _google(lines[start + 1 :]) if kind == "google" else _numpy(lines, start + 2)
    return description, {name: " ".join(" ".join(text).split()) for name, text in entries.items()}


def _section(lines: list[str], i: int) -> str | None:
    """The style of the section that starts at a line, if one does."""
    if _GOOGLE.match(lines[i]):
        return "google"
    if _NUMPY.match(lines[i]) and i + 1 < len(lines) and re.match("-{3,}$", lines[i + 1]):
        return "numpy"
    return "sphinx" if _SPHINX.match(lines[i]) else None


def _google(lines: list[str]) -> dict[str, list[str]]:
    body = takewhile(lambda line: not line or line[0].isspace(), lines)
    entries: dict[str, list[str]] = {}
    text: list[str] = []
    for line in inspect.cleandoc("\n" + "\n".join(body)).splitlines():
        if match := _GOOGLE_ENTRY.match(line):
            text = entries[match[1]] = [match[2]]
        else:
            text.append(line)
    return entries


def _numpy(lines: list[str], start: int) -> dict[str, list[str]]:
    entries: dict[str, list[str]] = {}
    text: list[str] = []
    for i in range(start, len(lines)):
        if i + 1 < len(lines) and re.match("-{3,}$", lines[i + 1]):
            break  # the next section
        if match := _NUMPY_ENTRY.match(lines[i]):
            text = []
            entries |= {name.strip(" *"): text for name in match[1].split(",")}
        else:
            text.append(lines[i])
    return entries
