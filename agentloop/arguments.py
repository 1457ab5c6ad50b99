"""From a function's signature to a JSON schema, and from the model's text to checked arguments.

Copy with: depends.py, errors.py and what they name.

Models send almost the right thing: a list as a JSON string, null for what could be left out, no
text at all. Arguments are checked first, and such habits are undone only where that failed.
"""

import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from inspect import Parameter
from textwrap import dedent
from typing import Annotated, Any, Literal, NotRequired, TypeVar, Union, cast

from pydantic import BaseModel, Field, RootModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, from_json, to_json
from typing_extensions import TypedDict

from .depends import Function, marked, signature_of
from .errors import ToolError
from .messages import JSON

Valid = TypeVar("Valid")

MAX_ERRORS = 10  # that the model reads
typed_dict: Any = TypedDict  # type checkers take it, and list[...], with literal types only
list_of: Any = list


class Arguments:
    """The arguments that a function takes: their schema, and the check of what a model sends.

    Each parameter is a property of the object that the model sends, unless it is injected. A single
    parameter that is a pydantic model is the whole object. `tool` is the name for messages, and
    `types` go before annotations.
    """

    def __init__(self, function: Function, tool: str, types: Mapping[str, object]) -> None:
        self.description, texts = parse_docstring(getattr(function, "func", function).__doc__)
        parameters = signature_of(function).parameters
        self.injected = marked(parameters)
        given = getattr(function, "keywords", ())  # those of a functools.partial
        hidden = {"self", *self.injected, *given}
        fields = {
            name: types.get(name) or field_type(tool, each)
            for name, each in parameters.items()
            if name not in hidden
        }
        self._model_parameter = ""  # the parameter that takes the whole object
        try:
            expected = _object(fields, "forbid", function.__module__)
            if len(fields) == 1:
                [(name, kind)] = fields.items()
                if isinstance(kind, type(BaseModel)) and not issubclass(kind, RootModel):
                    self._model_parameter, expected = name, kind
            self._adapter = TypeAdapter[Any](expected)
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
        self.schema: JSON = from_json(to_json(schema, inf_nan_mode="strings"))

    def read(self, text: str) -> JSON:
        """Return the arguments by parameter name, from a model's JSON text. Raises ToolError."""
        value: JSON = read_object(text, self._adapter)
        if self._model_parameter:
            return {self._model_parameter: value}
        return value


def field_type(tool: str, parameter: Parameter) -> object:
    """Return the type of a parameter, with its default. TypeError: a model cannot fill it in."""
    name, kind, value = parameter.name, parameter.annotation, parameter.default
    if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
        raise TypeError(
            f"tool {tool!r}: parameter {name!r} is {parameter.kind.description}; "
            "a model can only fill in parameters that have a name of their own"
        )
    if kind is Parameter.empty:
        raise TypeError(f"tool {tool!r}: parameter {name!r} needs a type annotation")
    if value is Parameter.empty:
        return kind
    if not isinstance(value, FieldInfo):
        value = Field(default=value)
    return Annotated[kind, value]


def read_object(text: str, adapter: TypeAdapter[Valid]) -> Valid:
    """Validate the model's JSON with `adapter`; undo common mistakes and try once more.

    The mistakes are null for what could be left out, and JSON in a string. Raises ToolError with a
    line for each problem.
    """
    data = parse_arguments(text)
    try:  # as JSON: strict models too take a string for a date there, and a list for a set
        return adapter.validate_json(to_json(data))
    except ValidationError as error:
        wrong = data.keys() & {each for problem in error.errors() for each in problem["loc"][:1]}
    for name in wrong:
        if data[name] is None:  # for an argument that could be left out
            del data[name]
        elif isinstance(data[name], str):  # a list or an object as a JSON string
            with suppress(ValueError):
                data[name] = from_json(data[name])
    try:
        return adapter.validate_json(to_json(data))
    except ValidationError as error:
        raise ToolError("\n".join(map(_problem, error.errors()[:MAX_ERRORS]))) from None


def type_of(schema: Any) -> Any:
    """Build a Python type from the JSON-schema keywords that `Tool` lists; other values are Any."""
    match schema:
        case {"enum": choices}:
            return Literal[*choices]
        case {"type": [*kinds]}:
            return Union[*(type_of({**schema, "type": kind}) for kind in kinds)]
        case {"type": "array"}:
            return list_of[type_of(schema.get("items"))]
        case {"type": "object"}:
            properties, required = schema.get("properties", {}), schema.get("required", ())
            fields = {name: NotRequired[type_of(each)] for name, each in properties.items()}
            fields |= {name: type_of(properties.get(name)) for name in required}
            closed = schema.get("additionalProperties") is False
            return _object(fields, "forbid" if closed else "allow")
        case {"type": kind}:
            return _SIMPLE.get(kind, Any)
        case _:
            return Any


def _object(fields: Mapping[str, object], extra: str, module: str = __name__) -> Any:
    """Build a type for JSON objects with these fields. `extra` is "allow" or "forbid"."""
    made = typed_dict("Object", fields)
    made.__module__ = module  # whose names a type such as list["Row"] uses
    made.__pydantic_config__ = {"extra": extra}
    return made


_SIMPLE: dict[object, object] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": None,
}


class _Schema(GenerateJsonSchema):
    def emit_warning(self, kind: object, detail: str) -> None:
        """Say nothing: a default that is no JSON is left out of the schema, and that is fine."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False  # a title is the name again


def parse_arguments(text: str) -> JSON:
    """Return the object that a model wrote as JSON. No text and `null` mean an empty one.

    Raises ToolError for anything else.
    """
    value: object = text
    try:
        while isinstance(value, str):  # some servers send the object as a JSON string
            value = from_json(value.strip() or "null", allow_inf_nan=False)
    except ValueError as error:
        raise ToolError(
            f"arguments must be a JSON object; this is not valid JSON: {error}"
        ) from None
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
    """Return the text before the first section, and {parameter: its text in one line}."""
    text = inspect.cleandoc(doc or "")
    description = _SECTION.split(text)[0]
    entries = _ENTRY.findall(dedent("".join(_ARGS.findall(text))) or text[len(description) :])
    return description.strip(), {name: " ".join(words.split()) for name, words in entries}
