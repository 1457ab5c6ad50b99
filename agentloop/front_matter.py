"""Reads a markdown file that begins with front matter: `key: value` lines between two `---`.

Copy with: nothing else.

It is the part of YAML that such files use: quoted values, values of several lines, lists.
"""

from __future__ import annotations

import re
from pathlib import Path

# A key, and its value with the lines that belong to it.
FIELD = re.compile(r"(?m)^([\w-]+) *:(?: *[>|][+-]?$)?(.*(?:\n[ \t-].*|\n$)*)")
EACH_NAME = re.compile(
    r"[^\s,\[\]'\"-][^\s,\[\]'\"]*"
)  # in `[a, b]`, `a, b`, `a b`, lines of `- a`


def read_front_matter(path: Path, *required: str) -> tuple[dict[str, str], str]:
    """The fields of a file, each as one line of text, and the text below them.

    ValueError names the file, the key and what to do.
    """
    text = path.read_text("utf-8-sig")
    [(head, body)] = re.findall(r"(?ms)\A(?:---\n(.*?)^---$)?(.*)", text)
    fields = {key: " ".join(value.split()).strip("'\"") for key, value in FIELD.findall(head)}
    for key in required:
        if not fields.get(key):
            raise ValueError(f"{path}: {key} is missing: write '{key}: ...' between two ---")
    return fields, body.strip()
