"""A record as a line of JSON, and back: `dump_record` and `load_record`.

Copy with: transcript.py and its imports.

A saved log consists of such lines. Fields and types that this version doesn't know survive.
"""

import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast, get_args, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from ..messages import (
    JSON,
    TAGS,
    Citation,
    Message,
    ToolCall,
    Unknown,
    Usage,
    tag_of,
)
from ..transcript import Record

# The files that define log entries and parts, and the types of these. A session may hold entries of
# a feature that its reader doesn't use, such as an approval request. They count all the same.
ENTRIES = {
    "common.decides": "answered",
    "common.found_tools": "found_tool",
    "common.nested": "inner_call inner_result",
    "common.pruned": "pruned",
    "common.review": "ask decision",
    "common.subagents": "sub_agent_record",
    "common.summary": "summary",
    "mixins.approval": "always_allow deferred plan_approved",
    "mixins.compaction": "summary_asked",
    "mixins.hooks": "hook_verdict withheld",
    "mixins.message_queue": "reminded sent",
    "toolkits.ask": "user_answer user_question",
    "toolkits.search": "tool_found",
    "toolkits.todo": "told_of_open_items",
}
MESSAGES = get_args(Message)
NESTED = {tuple[ToolCall, ...]: ToolCall, tuple[Citation, ...]: Citation}  # by the type of a field


def to_dict(value: object) -> Any:
    """Turn a record into JSON data, with its type under "type".

    Fields that have their default value are left out, and bytes become base64.
    """
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return [to_dict(item) for item in cast(Sequence[object], value)]
    if isinstance(value, Unknown):
        return dict(value.data)
    if not is_dataclass(value):
        return value
    cls: Any = type(value)
    data = JSON()
    if cls not in (Usage, ToolCall, Citation):
        data["type"] = tag_of(cls)
    for name, default in fields_of(cls).items():
        if (current := getattr(value, name)) != default:
            data[name] = to_dict(current)
    return data


def from_dict(data: Any, cls: Any = None) -> Any:
    """Turn a dict from `to_dict` back into a record or a part. An unknown type becomes `Unknown`.

    Raises KeyError, TypeError or ValueError if `to_dict` can't have made it.
    """
    if cls is None:
        cls = class_of(str(data["type"]))
    if cls is Unknown:
        return Unknown(data)
    values = dict[str, object]()
    extra = JSON()
    for key, value in data.items():
        if key in fields_of(cls):
            values[key] = _read_field(cls, key, value)
        elif key != "type":  # a field defined by a later version
            extra[key] = value
    if extra:
        values["extra"] = {**(data.get("extra") or {}), **extra}
    return cls(**values)


def class_of(tag: str) -> type:
    """The class for a "type" in session files, or `Unknown` if this program has none."""
    for module, tags in ENTRIES.items():
        if tag not in TAGS and tag in tags.split():
            with suppress(ImportError, TypeError):  # the file was deleted, or is part of a bundle
                import_module(f"..{module}", __package__)
    return TAGS.get(tag, Unknown)


def _read_field(cls: Any, name: str, value: Any) -> Any:
    """Read a field's value from JSON, in which a tuple is a list, and an enum or a time is text."""
    hint = field_types_of(cls)[name]
    if hint in NESTED:
        return tuple(from_dict(item, NESTED[hint]) for item in value)
    if bytes in (hint, *get_args(hint)) and isinstance(value, str):
        return base64.b64decode(value)
    if issubclass(cls, MESSAGES) and name == "content" and not isinstance(value, str):
        return [from_dict(part) for part in value]
    if hint in MESSAGES:
        return from_dict(value)
    if hint == Usage | None and value is not None:
        return from_dict(value, Usage)
    return adapter_of(hint).validate_json(to_json(value), strict=True)


def dump_record(record: Record | Message) -> bytes:
    """Write a record as a line of JSON, without the line end.

    Raises ValueError if JSON can't hold it, because of an object in `extra` for example.
    """
    return to_json(to_dict(record), inf_nan_mode="strings")


def load_record(line: str | bytes) -> Any:
    """Read a record from its line. A type that this version doesn't know becomes `Unknown`.

    Raises ValueError if the line isn't JSON, or if a field is missing or has the wrong type.
    """
    try:
        return from_dict(from_json(line))
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"this line isn't a record: {error!r}") from None


# ---- the names of types and fields


@cache
def fields_of(cls: type) -> dict[str, object]:
    """The fields of a record's class, with their defaults."""
    return {field.name: field.default for field in fields(cls)}


field_types_of = cache(get_type_hints)  # by class
adapter_of = cache(TypeAdapter[Any])  # validators of field values, by type
