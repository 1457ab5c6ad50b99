r"""Reads configs: fills in variables of the environment, hides their values, checks the keys.

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

# `${NAME}`, and what other programs write: `${NAME:-default}` (Claude Code), `${env:NAME}` (Cursor,
# VS Code, Windsurf), `${input:NAME}` (VS Code, which asks the user for it)
VARIABLE = re.compile(r"\$\{(?:env:|input:)?(\w[\w-]*)(?::-([^{}]*))?\}")
SHORTEST = 6  # characters of a secret: what is shorter may be part of a word
# Characters of a secret that is searched for in each mixture of encodings: the longer it is, the
# longer that takes. A longer one is a document rather than a key.
LONGEST_MIXED = 1000


class Secrets(frozenset[str]):
    """Texts that nothing may show. Printing the set shows none of them."""

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


def fill_in(text: str) -> tuple[str, Secrets]:
    """Replace each `${NAME}` of a JSON text by that variable; return the text and the values.

    A variable that is not set, or empty, has the value that follows `:-`, if there is one. Raises
    ValueError with the name of a variable to set.
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
    """Return the texts of a URL except its host, and its `user:password` as a header has it."""
    address = urlsplit(url)
    login, _, _ = address.netloc.rpartition("@")
    user, _, password = login.partition(":")
    header = b64encode(unquote(f"{user}:{password}").encode()).decode()
    return {*re.split("[/?&=:@]", url), header} - {address.hostname or ""}


def mask(text: str, secrets: Iterable[str]) -> str:
    r"""Put *** in the place of each secret, however its characters are written: `/`, `\/`, `%2F`.

    A secret of fewer than `SHORTEST` characters stays: it may be part of a word. One of more than
    `LONGEST_MIXED` is found as it is, or if one encoder wrote all of it.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) < SHORTEST:
            continue
        words = set(re.findall("[A-Za-z0-9]+", secret))
        if not all(word in text for word in words):
            continue  # no encoding changes a word, so the secret is not there either
        if len(secret) <= LONGEST_MIXED:
            text = re.sub("".join(map(_ways_to_write, secret)), "***", text)
        else:
            for encoded in sorted(_encodings(secret), key=len, reverse=True):
                text = text.replace(encoded, "***")
        text = text.replace(secret, "***")
    return text


def _encodings(secret: str) -> set[str]:
    """Return a whole text as JSON, Python and URLs have it."""
    quoted = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    by_php = {each.replace("/", "\\/") for each in escaped}
    return {*quoted, *escaped, *by_php, repr(secret)[1:-1]}


def _ways_to_write(character: str) -> str:
    """Build a pattern for a character as it is, escaped, and encoded for a URL."""
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
    # `i`: %2f and %2F. `>`: `\` beside `\\` would make a search try each combination.
    return f"(?>(?i:{'|'.join(map(re.escape, longest_first))}))"


class StrictConfig(BaseModel, hide_input_in_errors=True):
    """A part of a config. A key that it does not know is an error that names the nearest known one.

    Its repr shows no values: there may be secrets among them.

    other_names: keys that other programs write, and our words for them; "" where one has no use.
    """

    other_names: ClassVar[Mapping[str, str]] = {}

    def __repr_args__(self) -> tuple[()]:
        return ()

    @model_validator(mode="before")
    @classmethod
    def _read_keys(cls, written: Any) -> object:
        """Return the settings under our names. Raises ValueError for an unknown key."""
        if written.__class__ is not dict:
            return written  # pydantic says what is wrong with it
        settings = dict[str, object]()
        keys = dict[str, str]()  # by the settings' names
        for key, value in written.items():
            name = cls.other_names.get(key, key)
            if name in keys:
                raise ValueError(f"{keys[name]!r} and {key!r} are one setting: write one of them")
            if name in cls.model_fields:
                settings[name] = value
                keys[name] = key
            elif name:
                [nearest, *_] = get_close_matches(key, [*cls.model_fields], cutoff=0)
                raise ValueError(f"there is no setting {key!r}; the nearest one is {nearest!r}")
        return settings
