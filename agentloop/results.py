"""What a tool returned or raised, as content that the model can read.

Copy with: messages.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, cast

from pydantic_core import from_json, to_json, to_jsonable_python

from .messages import FilePart, ImagePart, Part, TextPart, Unknown, clean_text


def as_content(value: Any, limit: int) -> str | tuple[Part, ...]:
    """What a tool returned, as the model will read it. Never raises: the tool has run.

    Text of more than `limit` characters loses its middle.
    """
    items: Sequence[Any] = value if type(value) in (list, tuple) else (value,)
    if not any(isinstance(item, _PARTS) for item in items):
        return clip(as_text(value), limit)
    parts: list[Part] = []
    for item in items:
        if not isinstance(item, _PARTS):
            item = TextPart(as_text(item))
        if isinstance(item, TextPart):
            item = replace(item, text=clip(item.text, limit))
            limit = max(0, limit - len(item.text))
        parts.append(item)
    return tuple(parts)


_PARTS = (TextPart, ImagePart, FilePart, Unknown)


_NOT_RUN = (GeneratorType, AsyncGeneratorType, CoroutineType)


def as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(str.__str__(value))  # of a StrEnum, its value
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(cast(bytes, value))
        return f"<{len(data):,} bytes, sha256 {sha256(data).hexdigest()[:16]}>"
    if isinstance(value, _NOT_RUN):
        kind = type(cast(object, value)).__name__
        return f"The tool returned a {kind} object, which nobody has run: there is nothing to see."
    try:
        return _to_json(value)
    except Exception:
        with suppress(Exception):  # text that UTF-8 cannot carry
            return _to_json_cleaned(value)
    return _describe(value)


def _to_json(value: Any) -> str:
    text = to_json(value, inf_nan_mode="strings", bytes_mode="base64", fallback=_describe).decode()
    return from_json(text) if text.startswith('"') else text  # a date, an Enum: no quotes needed


def _to_json_cleaned(value: Any) -> str:
    plain = to_jsonable_python(value, bytes_mode="base64", fallback=_describe)
    return _to_json(from_json(clean_text(json.dumps(plain, ensure_ascii=False))))


def _describe(value: Any) -> str:
    try:
        return clean_text(repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


def clip(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    return f"{head}\n[... {len(text) - limit:,} characters left out ...]\n{tail}"


def describe_error(error: BaseException, limit: int = 500) -> str:
    """An exception for the model: its type and the first line of what it says."""
    inner: Any = getattr(error, "exceptions", ())
    if issubclass(type(error), BaseExceptionGroup) and len(inner) == 1:
        return describe_error(inner[0], limit)  # the group itself says nothing
    try:
        lines = clean_text(str(error)).strip().splitlines()
    except Exception:
        lines = []
    return truncate(": ".join([type(error).__name__, *lines[:1]]), limit)


def truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
