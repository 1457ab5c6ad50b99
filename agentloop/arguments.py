"""Makes a JSON schema of a function's signature, and validates the arguments a model writes.

Copy with: depends.py, errors.py and their imports.

Models don't keep to schemas: they send a list as a JSON string, null for an optional argument, or
empty text. That's mended only if the arguments aren't valid as they are.
"""

import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from inspect import Parameter
from textwrap import dedent
from typing import Annotated, Any, Literal, NotRequired, Union, cast

from pydantic import BaseModel, Field, RootModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, from_json, to_json
from typing_extensions import TypedDict

from .depends import Function, marked, signature_of
from .errors import ToolError
from .messages import JSON

MAX_ERRORS = 10  # validation errors that the model reads
typed_dict: Any = TypedDict  # type checkers accept it, and list[...], with literal types only
list_of: Any = list


class Arguments:
    """The arguments of a function: their schema, and how to read them from a model's JSON.

    Each parameter is a property of the JSON object, unless it's injected. If the only parameter is
    a pydantic model, it stands for the whole object. `tool` is the name for error messages, and
    `types` go before annotations.
    """

    def __init__(self, function: Function, tool: str, types: Mapping[str, object]) -> None:
        self.description, texts = parse_docstring(getattr(function, "func", function).__doc__)
        parameters = signature_of(function).parameters
        self.injected = marked(parameters)
        bound = getattr(function, "keywords", ())  # of a functools.partial
        hidden = {"self", *self.injected, *bound}
        fields = {
            name: types.get(name) or field_type(tool, parameter)
            for name, parameter in parameters.items()
            if name not in hidden
        }
        self.model_parameter = ""  # the parameter that stands for the whole object
        try:
            expected = _object(fields, "forbid", function.__module__)
            if len(fields) == 1:
                [(name, kind)] = fields.items()
                if isinstance(kind, type(BaseModel)) and not issubclass(kind, RootModel):
                    self.model_parameter, expected = name, kind
            self._adapter = TypeAdapter[Any](expected)
            schema = self._adapter.json_schema(schema_generator=_Schema)
        except (PydanticUserError, NameError, TypeError) as error:
            raise TypeError(
                f"tool {tool!r}: the type of a parameter has no JSON schema: inject it with "
                "Depends(...), or use a type that pydantic supports. "
                f"Pydantic says: {str(error).splitlines()[0]}"
            ) from error
        if ref := schema.pop("$ref", None):  # a recursive model
            schema |= schema["$defs"][ref.rpartition("/")[2]]
        schema.pop("title", None)
        for name in texts.keys() & schema["properties"].keys():
            schema["properties"][name].setdefault("description", texts[name])
        self.schema: JSON = from_json(to_json(schema, inf_nan_mode="strings"))

    def read(self, text: str) -> JSON:
        """Read the arguments, by parameter, from a model's JSON text. Raises ToolError."""
        value = read_object(text, self._adapter)
        return {self.model_parameter: value} if self.model_parameter else value


def field_type(tool: str, parameter: Parameter) -> object:
    """A parameter's type, with its default. Raises TypeError if a model couldn't set it."""
    name, kind, value = parameter.name, parameter.annotation, parameter.default
    if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
        raise TypeError(
            f"tool {tool!r}: parameter {name!r} is {parameter.kind.description}; "
            "a model can only set parameters by name, so replace it"
        )
    if kind is Parameter.empty:
        raise TypeError(f"tool {tool!r}: parameter {name!r} needs a type annotation, such as int")
    if value is Parameter.empty:
        return kind
    if not isinstance(value, FieldInfo):
        value = Field(default=value)
    return Annotated[kind, value]


def read_object(text: str, adapter: TypeAdapter[JSON]) -> JSON:
    """Validate the model's JSON. If it's invalid, mend what models often get wrong and try again.

    That's null for an optional argument, and JSON in a string. Raises ToolError with one line per
    problem.
    """
    data = parse_arguments(text)
    try:  # JSON mode: strict models also accept a string for a date, and a list for a set
        return adapter.validate_json(to_json(data))
    except ValidationError as error:
        wrong = data.keys() & {name for problem in error.errors() for name in problem["loc"][:1]}
    for name in wrong:
        if data[name] is None:  # an optional argument
            del data[name]
        elif isinstance(data[name], str):  # a list or an object as a JSON string
            with suppress(ValueError):
                data[name] = from_json(data[name])
    try:
        return adapter.validate_json(to_json(data))
    except ValidationError as error:
        raise ToolError("\n".join(map(_problem, error.errors()[:MAX_ERRORS]))) from None


def type_of(schema: Any) -> Any:
    """A Python type for the JSON-schema keywords that `Tool` lists; Any for all others."""
    match schema:
        case {"enum": choices}:
            return Literal[*choices]
        case {"type": [*kinds]}:
            return Union[*(type_of({**schema, "type": kind}) for kind in kinds)]
        case {"type": "array"}:
            return list_of[type_of(schema.get("items"))]
        case {"type": "object"}:
            required = schema.get("required", ())
            fields: dict[str, object] = dict.fromkeys(required, Any)
            for name, value in schema.get("properties", {}).items():
                field = type_of(value)
                fields[name] = field if name in required else NotRequired[field]
            closed = schema.get("additionalProperties") is False
            return _object(fields, "forbid" if closed else "allow")
        case {"type": kind}:
            return _SIMPLE.get(kind, Any)
        case _:
            return Any


def _object(fields: Mapping[str, object], extra: str, module: str = __name__) -> Any:
    """A type for JSON objects with these fields. `extra` is "allow" or "forbid"."""
    kind = typed_dict("Object", fields)
    kind.__module__ = module  # resolves names in annotations such as list["Row"]
    kind.__pydantic_config__ = {"extra": extra}
    return kind


_SIMPLE: dict[object, object] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": None,
}


class _Schema(GenerateJsonSchema):
    def emit_warning(self, kind: object, detail: str) -> None:
        """Say nothing: a default that JSON can't express is left out of the schema."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False  # a title would repeat the name


def parse_arguments(text: str) -> JSON:
    """Read the JSON object in a model's text; empty text and `null` stand for an empty one.

    Raises ToolError for anything else.
    """
    value: object = text
    try:
        while isinstance(value, str):  # some servers send the object as a JSON string
            value = from_json(value.strip() or "null", allow_inf_nan=False)
    except ValueError as error:
        raise ToolError(f"arguments must be a JSON object; invalid JSON: {error}") from None
    if value is None:
        return {}
    if type(value) is not dict:
        raise ToolError(f"arguments must be a JSON object, not {value!r:.40}")
    return cast(JSON, value)


def _problem(error: ErrorDetails) -> str:
    where = ".".join(map(str, error["loc"])) or "arguments"
    return f"{where}: {error['msg']} (got {error['input']!r:.40})"[:300]


# ---- docstrings

_SECTION = re.compile(r"^(Args|Returns|Yields|Raises):$|^:(param|return|raise|rtype)", re.M)
_ARGS = re.compile(r"^Args:\n((?:[ \t].*\n?|\n)*)", re.M)
_ENTRY = re.compile(r"^(?::param (?:[^:]* )?)?(\w+) *(?:\(.*\))?:(.*(?:\n+[ \t].*)*)", re.M)


def parse_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring: the text before the first section, and {parameter: one line about it}."""
    text = inspect.cleandoc(doc or "")
    description = _SECTION.split(text)[0]
    entries = _ENTRY.findall(dedent("".join(_ARGS.findall(text))) or text[len(description) :])
    return description.strip(), {name: " ".join(words.split()) for name, words in entries}
