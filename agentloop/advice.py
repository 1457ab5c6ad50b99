"""Remedies for unknown names, for error messages.

Copy with: nothing else.

vocabulary.py fills the tables with names of other agent libraries. Without that file, the tables
are empty, and a remedy is the nearest known name.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

SETTING_REMEDIES = dict[str, str]()  # by unknown setting of an agent
ATTRIBUTE_REMEDIES = dict[str, str]()  # by unknown attribute of an agent
PARAMETER_REMEDIES = dict[str, str]()  # by unknown parameter of a model


def advice(remedies: Mapping[str, str], name: str, known: Iterable[str], default: str) -> str:
    """Return a remedy for an unknown name, from a table or by the nearest known name."""
    if name in remedies:
        return remedies[name]
    near = get_close_matches(name, known, 1, 0.7)
    return f"did you mean {near[0]}?" if near else default
