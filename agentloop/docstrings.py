"""Takes a docstring apart: what a function does, and what each of its parameters means.

Copy with: nothing else.

Reads the Google style ("Args:"), the NumPy style ("Parameters" over dashes) and the Sphinx style
(":param x: ..."). A docstring in none of them is all description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from itertools import takewhile

_PARAMETERS = r"(?:Other |Keyword )?(?:Args|Arguments|Params|Parameters)"
_OTHERS = r"(?:Returns?|Yields?|Raises|Receives|Warns)"
_GOOGLE = re.compile(rf"({_PARAMETERS}|{_OTHERS}):$")
_NUMPY = re.compile(rf"({_PARAMETERS}|{_OTHERS})$")
_SPHINX = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|yields?)\b[^:]*:"
)
# In an entry of a section: the names of parameters, and the text on the same line.
_GOOGLE_ENTRY = re.compile(r"(\*{0,2}\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(.*)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$()")
_SPHINX_ENTRY = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s[^:]*?(\w+)\s*:(.*)")


def parse_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The text before the first section of a docstring, and the text of each parameter.

    A parameter's text is folded into one line.
    """
    lines = inspect.cleandoc(doc or "").splitlines()
    underlined = [re.match("-{3,}$", line) is not None for line in [*lines[1:], ""]]
    first, found = len(lines), dict[str, str]()
    for i, line in enumerate(lines):
        rest = lines[i + 1 :]
        if _SPHINX.match(line):
            text = takewhile(lambda line: line and line[0] != ":", rest)
            entries = _entries([line, *text], _SPHINX_ENTRY)
        elif _GOOGLE.match(line):
            text = takewhile(lambda line: not line or line[0].isspace(), rest)
            entries = _entries(inspect.cleandoc("\n" + "\n".join(text)).splitlines(), _GOOGLE_ENTRY)
        elif _NUMPY.match(line) and underlined[i]:
            end = next((j for j in range(i + 2, len(lines)) if underlined[j]), len(lines))
            entries = _entries(lines[i + 2 : end], _NUMPY_ENTRY)
        else:
            continue
        first = min(first, i)
        if line[0] == ":" or re.match(_PARAMETERS, line):
            found |= entries
    return "\n".join(lines[:first]).strip(), found


def _entries(lines: Iterable[str], start: re.Pattern[str]) -> dict[str, str]:
    """The text of each parameter; what comes before the first is dropped."""
    entries: dict[str, list[str]] = {}
    text: list[str] = []
    for line in lines:
        if match := start.match(line):
            text = [match[2]]
            entries |= {name.strip(" *"): text for name in match[1].split(",")}
        else:
            text.append(line)
    return {name: " ".join(" ".join(text).split()) for name, text in entries.items()}
