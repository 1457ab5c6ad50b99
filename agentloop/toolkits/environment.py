r"""Configuration files: filling in variables, hiding their values, and checking keys.

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
SHORTEST = 6  # minimum characters of a secret; shorter strings may be parts of words
# Maximum characters of a secret that is matched in every mixture of encodings; the duration grows
# with the length. Longer strings are documents rather than keys.
LONGEST_MIXED = 1000


class Secrets(frozenset[str]):
    """A set of confidential strings, whose repr only shows how many there are."""

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"


def fill_in(text: str) -> tuple[str, Secrets]:
    """Replace every `${NAME}` in a JSON document with the variable. Return the text and the values.

    `${NAME:-default}` has a default for a variable that is unset or empty. Raises ValueError if a
    variable is missing; the message names it.
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
    """The components of a URL apart from its host, and `user:password` as in a header."""
    address = urlsplit(url)
    login, _, _ = address.netloc.rpartition("@")
    user, _, password = login.partition(":")
    header = b64encode(unquote(f"{user}:{password}").encode()).decode()
    texts = re.split("[/?&=:@#]", url)
    return {*texts, *map(unquote, texts), header} - {address.hostname or ""}


def mask(text: str, secrets: Iterable[str]) -> str:
    r"""Replace every secret with ***, however its characters are encoded: `/`, `\/`, `%2F`.

    A secret shorter than `SHORTEST` characters stays, because it may be a part of a word. One that
    is longer than `LONGEST_MIXED` is found if it's unchanged, or encoded as a whole by one encoder.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) < SHORTEST:
            continue
        words = set(re.findall("[A-Za-z0-9]+", secret))
        if not all(word in text for word in words):
            continue  # encodings preserve alphanumeric words, so the secret does not occur
        if len(secret) <= LONGEST_MIXED:
            text = re.sub("".join(map(_ways_to_write, secret)), "***", text)
        else:
            for encoded in sorted(_encodings(secret), key=len, reverse=True):
                text = text.replace(encoded, "***")
        text = text.replace(secret, "***")
    return text


def _encodings(secret: str) -> set[str]:
    """The whole secret as JSON, Python and URLs encode it."""
    quoted = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    by_php = {text.replace("/", "\\/") for text in escaped}
    return {*quoted, *escaped, *by_php, repr(secret)[1:-1]}


def _ways_to_write(character: str) -> str:
    """A regular expression for a character: unchanged, escaped, or URL-encoded."""
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
    """A section of a configuration. For an unknown key, the error suggests the nearest setting.

    The repr has no values, because they may be secrets.

    other_names: maps keys of other programs to our settings, or to "" if they're ignored.
    """

    other_names: ClassVar[Mapping[str, str]] = {}

    def __repr_args__(self) -> tuple[()]:
        return ()

    @model_validator(mode="before")
    @classmethod
    def _read_keys(cls, written: Any) -> object:
        """The values by setting. Raises ValueError for an unknown key."""
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
