r"""Reads configuration files: fills in variables, hides their values, and checks keys.

Copy with: nothing else.

    text, secrets = fill_in('{"key": "${API_KEY}"}')  # '{"key": "a/b-12345"}'
    mask(r"no such key: a\/b-12345", secrets)  # "no such key: ***"
"""

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pydantic import BaseModel, model_validator

# `${NAME}`, and the syntax of other programs: `${NAME:-default}` (Claude Code), `${env:NAME}`
# (Cursor, VS Code, Windsurf), `${input:NAME}` (VS Code, which prompts the user for the value)
VARIABLE = re.compile(r"\$\{(?:env:|input:)?(\w[\w-]*)(?::-([^{}]*))?\}")
SHORTEST = 6  # characters; a shorter secret isn't hidden, because it may be part of a word


class Secrets(frozenset[str]):
    """A set of secret texts. Its repr only shows how many there are."""

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


def fill_in(text: str) -> tuple[str, Secrets]:
    """Replace every `${NAME}` in a JSON text with the variable. Returns the text and the values.

    `${NAME:-default}` has a default, for a variable that's unset or empty. Raises ValueError, which
    names the variable, if one is missing.
    """
    secrets = set[str]()

    def value_of(place: re.Match[str]) -> str:
        name, default = place.groups()
        value = os.environ.get(name, "").strip()
        if not value and default is not None:
            return str(default)
        if name not in os.environ:
            raise ValueError(f"set {name!r} in the environment")
        secrets.add(value)
        return json.dumps(value)[1:-1]

    filled = VARIABLE.sub(value_of, text)
    return filled, Secrets(secrets)


def texts_in_url(url: str) -> set[str]:
    """The parts of a URL except its host, and `user:password` as a header has it."""
    address = urlsplit(url)
    login, _, _ = address.netloc.rpartition("@")
    user, _, password = login.partition(":")
    header = b64encode(unquote(f"{user}:{password}").encode()).decode()
    texts = re.split("[/?&=:@#]", url)
    return {*texts, *map(unquote, texts), header} - {address.hostname or ""}


def mask(text: str, secrets: Iterable[str]) -> str:
    r"""Replace every secret with ***, however its characters are encoded: `/`, `\/`, `%2F`.

    A secret of less than six characters stays, because it may be part of a word.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) < SHORTEST:
            continue
        words = set(re.findall("[A-Za-z0-9]+", secret))
        if not all(word in text for word in words):
            continue  # no encoding changes letters and digits, so the secret isn't in the text
        text = re.sub("".join(map(_ways_to_write, secret)), "***", text)
        text = text.replace(secret, "***")
    return text


def _ways_to_write(character: str) -> str:
    """A regular expression for a character: as it is, escaped, or URL-encoded."""
    if character.isascii() and character.isalnum():
        return character
    ways = {
        character,
        quote(character, safe=""),
        quote_plus(character),
        repr(character)[1:-1],
        json.dumps(character)[1:-1],
        f"\\{character}",  # PHP writes \/
        f"\\u{ord(character):04x}",  # .NET writes \u002B
    }
    longest_first = sorted(ways, key=len, reverse=True)
    # `i`: %2f and %2F. `>`: without an atomic group, the alternatives `\` and `\\` would make a
    # search try every combination.
    return f"(?>(?i:{'|'.join(map(re.escape, longest_first))}))"


class StrictConfig(BaseModel, hide_input_in_errors=True):
    """A section of a configuration. If a key is unknown, the error suggests the nearest setting.

    The repr has no values, because they may be secrets.

    other_names: keys of other programs, and our setting for each, or "" to ignore it.
    """

    other_names: ClassVar[Mapping[str, str]] = {}

    def __repr_args__(self) -> tuple[()]:
        return ()

    @model_validator(mode="before")
    @classmethod
    def _read_keys(cls, written: Any) -> object:
        """Collect the values by setting. Raises ValueError for an unknown key."""
        if written.__class__ is not dict:
            return written  # pydantic reports the invalid type
        settings = dict[str, object]()
        keys = dict[str, str]()  # by setting name
        for key, value in written.items():
            name = cls.other_names.get(key, key)
            if name in keys:
                raise ValueError(
                    f"{keys[name]!r} and {key!r} are the same setting: remove one of them"
                )
            if name in cls.model_fields:
                settings[name] = value
                keys[name] = key
            elif name:
                [nearest, *_] = get_close_matches(key, [*cls.model_fields], cutoff=0)
                raise ValueError(f"unknown setting {key!r}. Did you mean {nearest!r}?")
        return settings
