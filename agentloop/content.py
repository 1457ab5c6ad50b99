"""Turns what a tool returns or raises into the content of a message.

Copy with: errors.py, waiting.py and their imports.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import from_json, to_json

from .errors import ToolError
from .messages import FilePart, ImagePart, Part, Stop, TextPart, ToolCall, ToolMessage, clean_text
from .waiting import logger, was_cancelled

MAX_PARTS = 2_000  # parts of a result
MAX_ATTACHED_BYTES = 20_000_000  # 27 MB in base64; every provider accepts requests of 32 MB


def to_content(value: Any, limit: int) -> str | tuple[Part, ...]:
    """Turn a tool's result into text, or into parts if it has parts. Never raises.

    All texts together have at most `limit` characters. The middle of a longer one is left out, and
    a note says how much.
    """
    items: Sequence[object] = value if type(value) in (list, tuple) else (value,)
    if not any(isinstance(item, Part) for item in items):
        return clip(as_text(value), limit)
    parts = [item if isinstance(item, Part) else TextPart(as_text(item)) for item in items]
    return fit(parts, limit)


def to_result(call: ToolCall, value: object, limit: int, ephemeral: int = 0) -> ToolMessage:
    """Turn the value that a tool returned into the result of its call: see `to_content`.

    Raises TypeError if the value is, or contains, an object that has no text: the model would read
    "<Weather object at 0x7f...>".
    """
    content = to_content(value, limit)
    opaque = list[str]()

    def show(inner: object) -> str:
        if type(inner).__repr__ is object.__repr__:
            opaque.append(type(inner).__name__)
        return repr(inner)

    is_json = value is None or (isinstance(content, str) and as_json(value, show) == content)
    if opaque:
        raise TypeError(
            f"{call.name} returned a {opaque[0]}, which has no text for the model: return text, a "
            "dict, a dataclass or a pydantic model"
        )
    return call.answer(content, ephemeral=ephemeral, is_json=is_json)


def ends_run(error: BaseException, on_tool_error: str) -> bool:
    """Whether an exception of a tool ends the run, instead of becoming the call's error result."""
    if isinstance(error, Stop | KeyboardInterrupt | SystemExit) or was_cancelled(error):
        return True
    unexpected = isinstance(error, Exception) and not isinstance(error, ToolError)
    return on_tool_error == "raise" and unexpected


def error_result(call: ToolCall, error: BaseException) -> ToolMessage:
    """The error result of a call: the text of a ToolError, or a description of what was raised.

    Anything but a ToolError is also logged with its traceback.
    """
    if isinstance(error, ToolError):
        text = safe_str(str, error)
    else:
        logger.warning("tool %s failed", call.name, exc_info=error)
        text = describe_error(error)
    return call.answer(to_content(text, 10_000), is_error=True)


def fit(parts: Sequence[Part], limit: int) -> tuple[Part, ...]:
    """Cut parts down to `limit` characters of text, `MAX_ATTACHED_BYTES` and `MAX_PARTS`.

    The first text that doesn't fit loses its middle. The texts after it are left out, and so are
    attachments that don't fit; the last part says how many are missing.
    """
    kept: list[Part] = []
    omitted = max(0, len(parts) - MAX_PARTS)
    bytes_left = MAX_ATTACHED_BYTES
    for part in parts[:MAX_PARTS]:
        size = 0
        if isinstance(part, ImagePart | FilePart):
            size = len(part.data or part.url or "")
        if isinstance(part, TextPart) and limit > 0:
            kept.append(replace(part, text=clip(part.text, limit)))
            limit -= len(part.text)
        elif isinstance(part, TextPart) or size > bytes_left:
            omitted += 1
        else:
            kept.append(part)
            bytes_left -= size
    if omitted:
        kept.append(TextPart(f"[{omitted:,} more parts omitted: the result is too large.]"))
    return tuple(kept)


def as_text(value: object) -> str:
    """Turn a value into text: "" for None, a string cleaned, "<3 bytes>" for bytes, others as JSON.

    If the JSON is a string, such as that of a date, it loses its quotes. What JSON can't hold
    becomes its repr.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(str.__str__(value))  # the value of a StrEnum
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    json = as_json(value)
    if json.startswith('"'):
        return str(from_json(json))  # a date without quotes
    return json or safe_str(repr, value)


def as_json(value: object, show: Callable[[Any], str] = repr) -> str:
    """Turn a value into JSON; "" if that's impossible. `show` writes unknown objects."""
    try:
        return to_json(value, inf_nan_mode="strings", bytes_mode="base64", fallback=show).decode()
    except Exception:  # the value contains itself, for example, or invalid Unicode
        return ""


def clip(text: str, limit: int) -> str:
    """Cut a text down to `limit` characters: a note replaces the middle."""
    if len(text) <= limit:
        return text
    head = text[: limit - limit // 2]
    tail = text[len(text) - limit // 2 :]
    return f"{head}\n[... {len(text) - limit:,} characters omitted ...]\n{tail}"


def describe_error(error: BaseException, hide: Callable[[str], str] = str) -> str:
    """The type and the first line of an exception, or of each one in a group: 500 characters.

    `hide` removes secrets before the text is cut off, because half a secret matches no pattern.
    """
    match error:
        case BaseExceptionGroup(exceptions=inner):  # the group itself has only a generic message
            return "; ".join(describe_error(error, hide) for error in inner)[:500]
        case _:
            line = hide(safe_str(str, error)).strip().split("\n")[0]
            return f"{type(error).__name__}: {line}".removesuffix(": ")[:500]


def safe_str(show: Callable[[object], str], value: object) -> str:
    """`show(value)`, or the name of the value's type if that fails."""
    try:
        return clean_text(show(value))
    except Exception:
        return f"<{type(value).__name__}>"
