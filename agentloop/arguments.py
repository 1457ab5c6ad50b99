"""From a function's signature to a JSON schema, and from the model's text to checked arguments.

Copy with: errors.py, results.py, messages.py.

Models send almost the right thing: a list as a JSON string, null for what could be left out, no
text at all. Arguments are checked first, and such habits are undone only where that failed.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from inspect import Parameter
from typing import Annotated, Any, cast, get_origin

import pydantic
from pydantic import (
    BaseModel,
    ConfigDict,
    RootModel,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import ErrorDetails, from_json, to_json

from .errors import ToolError
from .results import clip, truncate

MAX_ARGUMENT_CHARS = 1_000_000
MAX_ERRORS = 10  # that the model reads
MAX_DETAILS = 10_000  # more failures than these would take seconds to look at one by one


def visible(
    tool: str, parameters: Mapping[str, Parameter], hidden: Container[str]
) -> dict[str, Parameter]:
    """The parameters that the model fills in. TypeError for those that it cannot."""
    found = dict[str, Parameter]()
    for i, (name, parameter) in enumerate(parameters.items()):
        typed = parameter.annotation is not parameter.empty
        if name in hidden or (i == 0 and name in ("self", "cls") and not typed):
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"tool {tool!r}: parameter {name!r} is {parameter.kind.description}; "
                "a model can only fill in parameters that have a name of their own"
            )
        if not typed:
            raise TypeError(f"tool {tool!r}: parameter {name!r} needs a type annotation")
        found[name] = parameter
    return found


class Arguments:
    """What a tool accepts: the schema for the model, and the check of what the model sends.

    Each parameter is a property of the object that the model sends; a single parameter that is a
    pydantic model is the whole object.
    """

    def __init__(
        self, tool: str, parameters: Mapping[str, Parameter], texts: Mapping[str, str]
    ) -> None:
        named = enumerate(parameters.items())
        self._fields = [(f"p{i}", name, _has_default(each)) for i, (name, each) in named]
        self._whole = _the_model_among(parameters)
        try:
            accepted = self._whole.annotation if self._whole else _model_of(parameters)
            self._adapter: TypeAdapter[Any] = TypeAdapter(accepted)
            schema = self._adapter.json_schema(schema_generator=_Schema)
        except _NO_SCHEMA as error:
            raise TypeError(f"tool {tool!r}: {_why_no_schema(parameters, error)}") from error
        if ref := schema.pop("$ref", None):  # a model that contains itself
            schema |= schema["$defs"][ref.rpartition("/")[2]]
        for each in (schema, *schema.get("$defs", {}).values()):
            each.pop("title", None)
        config = getattr(_bare(self._whole.annotation), "model_config", ()) if self._whole else ()
        self._says_extra = "extra" in config
        if not self._says_extra:
            schema["additionalProperties"] = False
        for name in texts.keys() & schema["properties"].keys() if not self._whole else ():
            schema["properties"][name].setdefault("description", texts[name])
        self.schema = schema

    def read(self, text: str) -> dict[str, Any]:
        """The arguments by parameter name, from a model's JSON text. ToolError as `validate`."""
        if not self._whole and len(text) <= MAX_ARGUMENT_CHARS and not _INF_NAN.search(text):
            with suppress(ValidationError):  # what is right takes a quarter of the time this way
                return self._by_name(self._adapter.validate_json(text))
        return self.validate(parse_arguments(text))

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name. ToolError: a line for each problem."""
        if self._whole and not data and _has_default(self._whole):
            return {}
        known = data if self._says_extra else self.schema["properties"]
        unknown = [name for name in data if name not in known]
        problems = [_unknown(name, known) for name in unknown[:MAX_ERRORS]]
        value, errors = self._read(data)
        if errors:
            _repair(data, errors, self.schema.get("required", ()))
            value, errors = self._read(data)
        problems += [_problem(data, each) for each in errors[:MAX_ERRORS]]
        if problems:
            raise ToolError(clip("\n".join(problems[:MAX_ERRORS]), 1000))
        return {self._whole.name: value} if self._whole else self._by_name(value)

    def _by_name(self, value: BaseModel) -> dict[str, Any]:
        given, values = value.model_fields_set, vars(value)
        return {
            name: values[field]
            for field, name, has_default in self._fields
            if field in given or not has_default
        }

    def _read(self, data: dict[str, Any]) -> tuple[Any, list[ErrorDetails]]:
        try:  # as JSON: strict models too take a string for a date there, and a list for a set
            return self._adapter.validate_json(to_json(data)), []
        except ValidationError as error:
            if (count := error.error_count()) > MAX_DETAILS:
                raise ToolError(f"{count:,} values do not fit the schema") from None
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return None, [e for e in found if e["type"] != "extra_forbidden" or len(e["loc"]) > 1]


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
        kind, field = parameter.annotation, pydantic.Field(alias=name)
        if _has_default(parameter):
            field = pydantic.Field(parameter.default, alias=name)
        elif isinstance(parameter.default, FieldInfo):  # x: int = Field(5, description=...)
            kind = Annotated[kind, parameter.default]
        fields[f"p{i}"] = (kind, field)
    return create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)


class _Schema(GenerateJsonSchema):
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Silent: a default that is no JSON is left out of the schema, and that is fine."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title is the name again

    def encode_default(self, dft: Any) -> Any:
        """Infinity is no JSON: as a string it is, and is read back as a number."""
        return from_json(to_json(super().encode_default(dft), inf_nan_mode="strings"))


def _why_no_schema(parameters: Mapping[str, Parameter], error: Exception) -> str:
    for name, parameter in parameters.items():
        kind = parameter.annotation
        try:
            TypeAdapter(kind).json_schema(schema_generator=_Schema)
        except _NO_SCHEMA as reason:
            return (
                f"parameter {name!r} has type {getattr(kind, '__name__', kind)}, which has no JSON "
                "schema. Inject it with Depends(...), or use a type that pydantic knows. "
                f"Pydantic says: {str(reason).splitlines()[0]}"
            )
    return f"there is no JSON schema for it: {error}"


_NO_SCHEMA = (PydanticUserError, NameError, TypeError)


_INF_NAN = re.compile("NaN|Infinity")  # in a string they do no harm, but they are rare


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


def _repair(data: dict[str, Any], errors: list[ErrorDetails], required: Container[str]) -> None:
    """Undo, where validation failed, two habits of models: a list or an object sent as a JSON
    string, and null for an argument that could be left out."""
    for item in errors:
        holder, key, value = _find_value(data, item["loc"])
        if value is None and holder is data and key not in required:
            del data[key]
        elif isinstance(value, str) and _CONTAINER_ERROR.fullmatch(item["type"]):
            with suppress(ValueError):
                if isinstance(decoded := _decode(value), list | dict):
                    holder[key] = decoded


_CONTAINER_ERROR = re.compile(
    "(list|dict|mapping|set|frozen_set|tuple|model|model_attributes|dataclass)_type"
)


def _find_value(data: Any, loc: Iterable[int | str]) -> tuple[Any, Any, Any]:
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
    hint = f"did you mean {near[0]!r}?" if near else "there is no such argument"
    return f"{_short(name)}: {hint}"


def _problem(data: dict[str, Any], item: ErrorDetails) -> str:
    where = ".".join(map(str, item["loc"])) or "arguments"
    got = "" if item["type"] == "missing" else f" (got {_short(_find_value(data, item['loc'])[2])})"
    return " ".join(f"{truncate(where, 80)}: {truncate(item['msg'], 200)}{got}".split())


def _short(value: Any) -> str:
    """A value, named or quoted in a few characters."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return repr(truncate(value, 40))
    return truncate(to_json(value).decode(), 40)
