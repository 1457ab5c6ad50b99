"""From a function's signature to a JSON schema, and from the model's text to checked arguments.

Copy with: errors.py, results.py, messages.py.

Models send almost the right thing: a list as a JSON string, null for what could be left out, no
text at all. Arguments are checked first, and such habits are undone only where that failed.
"""

import inspect
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from inspect import Parameter
from typing import Annotated, Any, Literal, NotRequired, Union, cast

from pydantic import BaseModel, Field, RootModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, from_json, to_json
from typing_extensions import TypedDict

from .errors import ToolError
from .results import truncate

MAX_ERRORS = 10  # that the model reads
typed_dict: Any = TypedDict  # checkers know both for literal types only
list_of: Any = list


class Arguments:
    """The arguments that a tool takes: their schema for the model, and the check of what it sends.

    Each parameter is a property of the object that the model sends. A single parameter that is a
    pydantic model is the whole object.
    """

    def __init__(
        self,
        tool: str,
        parameters: Mapping[str, Parameter],
        hidden: Container[str],
        texts: Mapping[str, str],
    ) -> None:
        fields: dict[str, Any] = {}
        for name, each in parameters.items():
            if name in hidden:
                continue
            if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                raise TypeError(
                    f"tool {tool!r}: parameter {name!r} is {each.kind.description}; "
                    "a model can only fill in parameters that have a name of their own"
                )
            if each.annotation is each.empty:
                raise TypeError(f"tool {tool!r}: parameter {name!r} needs a type annotation")
            fields[name] = _with_default(each)
        [*names], [*kinds] = fields, fields.values()
        self._whole = names if len(names) == 1 and _is_model(kinds[0]) else []
        try:
            accepted = kinds[0] if self._whole else _object(fields, "forbid")
            self._adapter: TypeAdapter[Any] = TypeAdapter(accepted)
            schema = self._adapter.json_schema(schema_generator=_Schema)
        except (PydanticUserError, NameError, TypeError) as error:
            raise TypeError(
                f"tool {tool!r}: a parameter has a type without a JSON schema. Inject it with "
                "Depends(...), or use a type that pydantic knows. "
                f"Pydantic says: {str(error).splitlines()[0]}"
            ) from error
        if ref := schema.pop("$ref", None):  # a model that contains itself
            schema |= schema["$defs"][ref.rpartition("/")[2]]
        schema.pop("title", None)
        for name in texts.keys() & schema["properties"].keys():
            schema["properties"][name].setdefault("description", texts[name])
        self.schema: dict[str, Any] = from_json(to_json(schema, inf_nan_mode="strings"))

    def read(self, text: str) -> dict[str, Any]:
        """The arguments by parameter name, from a model's JSON text. Raises ToolError."""
        value = read_object(text, self._adapter, self.schema.get("required", ()))
        return dict.fromkeys(self._whole, value) if self._whole else value


def read_object(text: str, adapter: TypeAdapter[Any], required: Container[str]) -> Any:
    """What an adapter makes of the JSON object that a model wrote.

    Raises ToolError with a line for each problem.
    """
    data = parse_arguments(text)
    try:
        return _check(data, adapter)
    except ValidationError as error:
        _repair(data, error.errors(), required)
    try:
        return _check(data, adapter)
    except ValidationError as error:
        errors = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        raise ToolError("\n".join(map(_problem, errors[:MAX_ERRORS]))) from None


def _check(data: dict[str, Any], adapter: TypeAdapter[Any]) -> Any:
    # as JSON: strict models too take a string for a date there, and a list for a set
    return adapter.validate_json(to_json(data))


def type_of(schema: Any) -> Any:
    """The type that a JSON schema describes, as far as `Tool` says; what it leaves open is Any."""
    if not isinstance(schema, dict):  # True or False
        return Any
    rule = cast(dict[str, Any], schema)
    if "const" in rule or "enum" in rule:
        return Literal[*rule.get("enum", [rule.get("const")])]
    kind = rule.get("type")
    if isinstance(kind, list):
        return Union[*(type_of({**rule, "type": each}) for each in cast(list[str], kind))]
    if kind == "array":
        return list_of[type_of(rule.get("items"))]
    if kind != "object":
        return _SIMPLE.get(kind, Any)
    properties, required = rule.get("properties", {}), rule.get("required", ())
    fields = {name: NotRequired[type_of(each)] for name, each in properties.items()}
    fields |= {name: type_of(properties.get(name)) for name in required}
    return _object(fields, "forbid" if rule.get("additionalProperties") is False else "allow")


def _object(fields: dict[str, Any], extra: str) -> Any:
    made = typed_dict("Object", fields)
    made.__pydantic_config__ = {"extra": extra}
    return made


def _is_model(kind: Any) -> bool:
    is_model = inspect.isclass(kind) and issubclass(kind, BaseModel)
    return is_model and not issubclass(kind, RootModel)


_SIMPLE: dict[Any, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": None,
}


def _with_default(parameter: Parameter) -> Any:
    kind, default = parameter.annotation, parameter.default
    if default is parameter.empty:
        return kind
    return Annotated[kind, default if isinstance(default, FieldInfo) else Field(default=default)]


class _Schema(GenerateJsonSchema):
    def emit_warning(self, kind: Any, detail: str) -> None:
        """Say nothing: a default that is no JSON is left out of the schema, and that is fine."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title is the name again


def parse_arguments(text: str) -> dict[str, Any]:
    """The object that a model wrote as JSON. No text and `null` mean an empty one.

    Some servers send the object as a JSON string: that is decoded once more. Raises ToolError for
    anything else.
    """
    try:
        value = _decode(text)
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


def _repair(data: dict[str, Any], errors: Iterable[ErrorDetails], required: Container[str]) -> None:
    """Undo two habits of models where the check failed: a list or an object sent as a JSON
    string, and null for an argument that could be left out."""
    for name in {str(error["loc"][0]) for error in errors if error["loc"]} & data.keys():
        value = data[name]
        if value is None and name not in required:
            del data[name]
        elif isinstance(value, str):
            with suppress(ValueError):
                if isinstance(decoded := _decode(value), list | dict):
                    data[name] = decoded


def _problem(error: ErrorDetails) -> str:
    where = ".".join(map(str, error["loc"])) or "arguments"
    if error["type"] == "extra_forbidden":
        return f"{where!r:.80}: there is no such argument"
    got = "" if error["type"] == "missing" else f" (got {_short(error['input'])})"
    return truncate(" ".join(f"{where}: {error['msg']}{got}".split()), 300)


def _short(value: Any) -> str:
    """A value, named or quoted in a few characters."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return repr(truncate(value, 40))
    return truncate(to_json(value).decode(), 40)
