"""Takes a docstring apart: what a function does, and what each of its parameters means.

Copy with: nothing else.

Reads the Google style (`Args:` over indented `name: text`) and the Sphinx style
(`:param name: text`). A docstring in another style, NumPy's for example, is all description.
"""

import inspect
import re
from textwrap import dedent

_SECTION = re.compile(r"^(Args|Returns|Yields|Raises):$|^:(param|return|raise|rtype)", re.M)
_ARGS = re.compile(r"^Args:\n((?:[ \t].*\n?|\n)*)", re.M)
_ENTRY = re.compile(r"^(?::param (?:[^:]* )?)?(\w+) *(?:\(.*\))?:(.*(?:\n+[ \t].*)*)", re.M)


def parse_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the text of each parameter, in one line."""
    text = inspect.cleandoc(doc or "")
    description = _SECTION.split(text)[0]
    entries = _ENTRY.findall(dedent("".join(_ARGS.findall(text))) or text[len(description) :])
    return description.strip(), {name: " ".join(words.split()) for name, words in entries}
