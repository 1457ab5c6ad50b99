"""Turns what a tool returned or raised into content that the model can read.

Copy with: messages.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import from_json, to_json

from .messages import FilePart, ImagePart, Part, TextPart, clean_text

MAX_PARTS = 2_000  # of one result
MAX_ATTACHED_BYTES = 20_000_000  # base64 makes 27 MB of them; a request may have 32 MB or more


def to_content(value: Any, limit: int) -> str | tuple[Part, ...]:
    """Turn what a tool returned into text, or into parts if it returned some. Never raises.

    All text together has at most `limit` characters, besides a note of what was left out: a text
    that is longer loses its middle.
    """
    items: Sequence[object] = value if type(value) in (list, tuple) else (value,)
    if not any(isinstance(item, Part) for item in items):
        return clip(as_text(value), limit)
    parts = [item if isinstance(item, Part) else TextPart(as_text(item)) for item in items]
    return fit(parts, limit)


def fit(parts: Sequence[Part], limit: int) -> tuple[Part, ...]:
    """Cut parts to `limit` characters of text, `MAX_ATTACHED_BYTES` and `MAX_PARTS`.

    The first text that does not fit loses its middle. What comes after it, and attachments that do
    not fit, are left out, and the last part says how many.
    """
    kept: list[Part] = []
    left_out = max(0, len(parts) - MAX_PARTS)
    bytes_left = MAX_ATTACHED_BYTES
    for part in parts[:MAX_PARTS]:
        size = 0
        if isinstance(part, ImagePart | FilePart):
            size = len(part.data or part.url or "")
        if isinstance(part, TextPart) and limit > 0:
            kept.append(replace(part, text=clip(part.text, limit)))
            limit -= len(part.text)
        elif isinstance(part, TextPart) or size > bytes_left:
            left_out += 1
        else:
            kept.append(part)
            bytes_left -= size
    if left_out:
        kept.append(TextPart(f"[{left_out:,} more parts were left out: the result is too large.]"))
    return tuple(kept)


def as_text(value: object) -> str:
    """Return a value as text: a string as it is, anything else as JSON, or as its repr."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(str.__str__(value))  # of a StrEnum, its value
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    try:
        json = to_json(value, inf_nan_mode="strings", bytes_mode="base64", fallback=repr)
        return from_json(json) if json[:1] == b'"' else json.decode()  # a date needs no quotes
    except Exception:  # it contains itself, for example, or text that UTF-8 cannot carry
        return safe_str(repr, value)


def clip(text: str, limit: int) -> str:
    """Return the text, without its middle if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    head = text[: limit - limit // 2]
    tail = text[len(text) - limit // 2 :]
    return f"{head}\n[... {len(text) - limit:,} characters left out ...]\n{tail}"


def describe_error(error: BaseException, hide: Callable[[str], str] = str) -> str:
    """Return the type of an exception and the first line of what it says, cut to 500 characters.

    Of a group, these are those of each exception in it.
    `hide` takes secrets out of the text while it is whole: no pattern finds a part of one.
    """
    match error:
        case BaseExceptionGroup(exceptions=inner):  # the group itself says nothing
            return "; ".join(describe_error(each, hide) for each in inner)[:500]
        case _:
            said = hide(safe_str(str, error)).strip().split("\n")[0]
            return f"{type(error).__name__}: {said}".removesuffix(": ")[:500]


def safe_str(show: Callable[[object], str], value: object) -> str:
    """Return `show(value)`, or the type of the value if that fails."""
    try:
        return clean_text(show(value))
    except Exception:
        return f"<{type(value).__name__}>"
