"""From a function's signature to a JSON schema, and from the model's text to checked arguments.

Copy with: depends.py, errors.py, results.py, messages.py.

Models send almost the right thing: a list as a JSON string, null for what could be left out, no
text at all. Arguments are checked first, and such habits are undone only where that failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from inspect import Parameter
from itertools import islice
from typing import Annotated, Any, cast, get_origin

from pydantic import BaseModel, Field, RootModel, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import ErrorDetails, from_json, to_json

from .depends import Function, parameter_types, parameters_of
from .errors import ToolError
from .results import clip

MAX_ARGUMENT_CHARS = 1_000_000
MAX_ERRORS = 10  # that the model reads
MAX_REPAIRS = 10_000  # more failures than these are not looked at one by one


def parameters_for_the_model(
    tool: str, function: Function, hidden: Iterable[str], names: Mapping[str, Any] | None
) -> dict[str, Parameter]:
    """The parameters that the model fills in, each with its annotation resolved."""
    hints, found = parameter_types(function, names), dict[str, Parameter]()
    given = {*hidden, *getattr(function, "keywords", ())}  # those of a functools.partial
    for i, (name, parameter) in enumerate(parameters_of(function).items()):
        if name in given or (i == 0 and name in ("self", "cls") and name not in hints):
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"tool {tool!r}: parameter {name!r} is {parameter.kind.description}; "
                "a model can only fill in parameters that have a name of their own"
            )
        if name not in hints:
            raise TypeError(f"tool {tool!r}: parameter {name!r} needs a type annotation")
        found[name] = parameter.replace(annotation=hints[name])
    return found


class Arguments:
    """What a tool accepts: the schema for the model, and the check of what the model sends.

    Each parameter is a property of the object that the model sends; a single parameter that is a
    pydantic model is the whole object.
    """

    def __init__(
        self, tool: str, parameters: dict[str, Parameter], texts: Mapping[str, str]
    ) -> None:
        self._parameters = parameters
        self._whole = _the_model_among(parameters)
        try:
            accepted = self._whole.annotation if self._whole else _model_of(parameters)
            self._adapter: TypeAdapter[Any] = TypeAdapter(accepted)
            schema = _without_titles(self._adapter.json_schema(schema_generator=_Schema))
        except _NO_SCHEMA as error:
            for name, parameter in parameters.items():
                _need_schema(tool, name, parameter.annotation)
            raise TypeError(f"tool {tool!r}: there is no JSON schema for it: {error}") from error
        if ref := schema.pop("$ref", None):  # a model that contains itself
            schema |= schema["$defs"][ref.rpartition("/")[2]]
        self._says_extra = "extra" in getattr(_bare(accepted), "model_config", ())
        if not self._says_extra:
            schema["additionalProperties"] = False
        for name in texts.keys() & schema["properties"].keys() if not self._whole else ():
            schema["properties"][name].setdefault("description", texts[name])
        self.schema = schema

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name. ToolError: a line for each problem."""
        if self._whole and not data and _has_default(self._whole):
            return {}
        known = data if self._says_extra else self.schema["properties"]
        unknown = (name for name in data if name not in known)
        problems = [_unknown(name, known) for name in islice(unknown, MAX_ERRORS)]
        value = self._read(data)
        if isinstance(value, ValidationError) and _repair(data, value, self.schema):
            value = self._read(data)
        if isinstance(value, ValidationError):
            problems += [_problem(data, each) for each in _errors(value)[:MAX_ERRORS]] or [
                f"{value.error_count():,} values do not fit the schema"
            ]
        if problems:
            raise ToolError(clip("\n".join(problems[:MAX_ERRORS]), 1000))
        return self._by_name(value)

    def _read(self, data: dict[str, Any]) -> Any:
        try:  # as JSON: strict models too take a string for a date there, and a list for a set
            return self._adapter.validate_json(to_json(data))
        except ValidationError as error:
            return error

    def _by_name(self, value: Any) -> dict[str, Any]:
        if self._whole:
            return {self._whole.name: value}
        arguments: dict[str, Any] = {}
        for i, (name, parameter) in enumerate(self._parameters.items()):
            if f"p{i}" in value.model_fields_set or not _has_default(parameter):
                arguments[name] = getattr(value, f"p{i}")
        return arguments


def _bare(annotation: Any) -> Any:
    """The type inside an `Annotated`."""
    return annotation.__origin__ if get_origin(annotation) is Annotated else annotation


def _has_default(parameter: Parameter) -> bool:
    """Whether Python itself knows what to do without it; it knows nothing of `= Field(...)`."""
    return not (parameter.default is Parameter.empty or isinstance(parameter.default, FieldInfo))


def _the_model_among(parameters: Mapping[str, Parameter]) -> Parameter | None:
    """The only parameter, if it is a pydantic model with fields."""
    if len(parameters) != 1:
        return None
    parameter = next(iter(parameters.values()))
    kind = _bare(parameter.annotation)
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    return parameter if is_model and not issubclass(kind, RootModel) else None


def _model_of(parameters: Mapping[str, Parameter]) -> type[BaseModel]:
    """A model with a field for each parameter; numbered, since `schema` or `_x` can be no field."""
    fields: dict[str, Any] = {}
    for i, (name, parameter) in enumerate(parameters.items()):
        kind, default = parameter.annotation, parameter.default
        if isinstance(default, FieldInfo):  # x: int = Field(5, description=...)
            fields[f"p{i}"] = (Annotated[kind, default], Field(alias=name))
        elif _has_default(parameter):
            fields[f"p{i}"] = (kind, Field(default, alias=name))
        else:
            fields[f"p{i}"] = (kind, Field(alias=name))
    return create_model("Arguments", **fields)


class _Schema(GenerateJsonSchema):
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Silent: a default that is no JSON is left out of the schema, and that is fine."""

    def encode_default(self, dft: Any) -> Any:
        """Infinity is no JSON: as a string it is, and is read back as a number."""
        return from_json(to_json(super().encode_default(dft), inf_nan_mode="strings"))


_NO_SCHEMA = (PydanticUserError, NameError, TypeError)


def _need_schema(tool: str, name: str, annotation: Any) -> None:
    try:
        TypeAdapter(annotation).json_schema(schema_generator=_Schema)
    except _NO_SCHEMA as error:
        kind = getattr(annotation, "__name__", None) or str(annotation)
        raise TypeError(
            f"tool {tool!r}: parameter {name!r} has type {kind}, which has no JSON schema. "
            "Inject it with Depends(...), or use a type that pydantic knows. "
            f"Pydantic says: {str(error).splitlines()[0]}"
        ) from error


def _without_titles(schema: Any, names: bool = False) -> Any:
    """Pydantic gives everything a "title", which is its name again. `names`: keys are names."""
    if schema.__class__ is list:
        return [_without_titles(item) for item in schema]
    if schema.__class__ is not dict:
        return schema
    return {
        key: value if key in _VALUES and not names else _without_titles(value, key in _NAMED)
        for key, value in schema.items()
        if names or key != "title"
    }


_VALUES = ("default", "const", "enum", "examples", "mapping")
_NAMED = ("properties", "$defs", "patternProperties")


def parse_arguments(arguments: str) -> dict[str, Any]:
    """The object that a model wrote as JSON; no text and `null` mean an empty one.

    Some servers send the object as a JSON string: that is decoded once more. ToolError for
    anything else.
    """
    if len(arguments) > MAX_ARGUMENT_CHARS:
        raise ToolError(f"the arguments are too long: at most {MAX_ARGUMENT_CHARS:,} characters")
    try:
        value = _decode(arguments)
    except ValueError as error:
        raise ToolError(f"the arguments are not valid JSON: {error}") from None
    if isinstance(value, str):
        with suppress(ValueError):
            value = _decode(value)
    if value is None:
        return {}
    if type(value) is not dict:
        raise ToolError(f"arguments must be a JSON object, not {_short(value)}")
    return cast(dict[str, Any], value)


def _decode(text: str) -> Any:
    return from_json(text, allow_inf_nan=False) if text.strip() else None


def _repair(data: dict[str, Any], error: ValidationError, schema: dict[str, Any]) -> bool:
    """Undo, where validation failed, two habits of models: a list or an object sent as a JSON
    string, and null for an argument that could be left out. Whether there was any."""
    repaired = False
    for item in _errors(error):
        holder, key, value = _find(data, item["loc"])
        if value is None and holder is data and key not in schema.get("required", ()):
            del holder[key]
            repaired = True
        elif type(value) is str and _CONTAINER_ERROR.fullmatch(item["type"]):
            with suppress(ValueError):
                if isinstance(decoded := _decode(value), list | dict):
                    holder[key] = decoded
                    repaired = True
    return repaired


_CONTAINER_ERROR = re.compile(
    "(list|dict|mapping|set|frozen_set|tuple|model|model_attributes|dataclass)_type"
)


def _errors(error: ValidationError) -> list[ErrorDetails]:
    """The single errors; none if they are so many that looking at them would take seconds."""
    if error.error_count() > MAX_REPAIRS:
        return []
    return error.errors(include_url=False, include_context=False, include_input=False)


def _find(data: Any, loc: Iterable[int | str]) -> tuple[Any, Any, Any]:
    """The container, key and value that an error is about. Pydantic's `loc` also names the
    members of unions that it tried: those are no keys."""
    holder: Any = None
    last: int | str = ""
    for key in loc:
        if type(data) in (dict, list):
            with suppress(TypeError, LookupError):
                holder, last, data = data, key, data[key]
    return holder, last, data


def _unknown(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:64], known, n=1)
    return (
        f"{_short(name)}: {f'did you mean {near[0]!r}?' if near else 'there is no such argument'}"
    )


def _problem(data: dict[str, Any], item: ErrorDetails) -> str:
    where = _line(".".join(map(str, item["loc"])) or "arguments", 80)
    got = "" if item["type"] == "missing" else f" (got {_short(_find(data, item['loc'])[2])})"
    return f"{where}: {_line(item['msg'], 200)}{got}"


def _short(value: Any) -> str:
    """A value, named or quoted in a few characters."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    if isinstance(value, int) and value.bit_length() > 128:
        return "a very long number"
    return json.dumps(value)


def _line(text: str, limit: int) -> str:
    text = " ".join(text[: 2 * limit].split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
