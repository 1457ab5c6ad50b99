"""Settings: one typed constructor for a class and all its mixins.

Copy with: messages.py.

    class Polite(Settings):
        greeting: str = "hello"       # a setting, and its default

    class Loud(Polite):
        greeting = "HELLO"            # another default

    Loud(greeting="hey")

A name that begins with `_` isn't a setting but the state of one agent: with `_seen: list[str] = []`
in a class, every agent and every fork gets a list of its own.

Defaults stay class attributes, so Python's own inheritance picks the default. A dataclass would
copy defaults from base to base, and a composed class would lose some of them.
"""

from collections.abc import Mapping
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache, partial
from inspect import Parameter, Signature, get_annotations
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    TypeVar,
    dataclass_transform,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from .messages import UnknownAttribute, advice, attribute_advice

AnySettings = TypeVar("AnySettings", bound="Settings")


class SettingError(TypeError, ValueError):
    """A setting is missing, unknown, or of the wrong type."""


@dataclass_transform(kw_only_default=True, eq_default=False)
class Settings:
    """Base of classes whose annotated attributes are settings: keywords of the constructor.

    Each object gets its own copy of a default list, dict or set. Raises SettingError if a setting
    is missing, unknown, or of the wrong type.
    """

    __signature__ = Signature()  # for `help` and `inspect.signature`

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Collect the settings of all bases. Raises TypeError if a name looks like a typo."""
        super().__init_subclass__(**kwargs)
        known = list[str]()
        for base in reversed(cls.__mro__):
            known += [name for name in get_annotations(base) if name[0] != "_"]
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(cls, name, Parameter.empty))
            for name in dict.fromkeys(known)
        ]
        cls.__signature__ = Signature(parameters)
        for name, value in vars(cls).items():
            if name in known or name[0] == "_" or hasattr(value, "__get__"):
                continue
            if near := get_close_matches(name, known, 1, 0.8):
                raise TypeError(f"{cls.__name__}: unknown setting {name}: did you mean {near[0]}?")

    def __init__(self, *values: object, **settings: object) -> None:
        cls: type = type(self)
        if values:
            raise SettingError(f"write settings as keywords: {cls.__name__}(llm=..., tools=[...])")
        vars(self).update(check_settings(cls, settings))
        for name in _annotations(cls):
            if name[0] == "_" and hasattr(cls, name):
                setattr(self, name, deepcopy(getattr(cls, name)))
        self.__post_init__()

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __call__(self, *args: object, **kwargs: object) -> object:
            kind = type(self).__name__
            raise TypeError(f"{kind} isn't a function: {attribute_advice(self, 'invoke')}")

        def __getattr__(self, name: str) -> object:
            if not hasattr(type(self), name):
                raise UnknownAttribute(self, name)
            return object.__getattribute__(self, name)  # raises the error of a failed property

    def __repr__(self) -> str:
        """The settings that aren't defaults. Only numbers are shown: a text may be a secret."""
        shown = list[str]()
        for name, value in settings_of(self).items():
            if value != getattr(type(self), name, None):
                is_plain = isinstance(value, int | float | None)
                shown.append(f"{name}={value if is_plain else '...'}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __post_init__(self) -> None:
        """Called once the settings of an agent, or of a fork, are there. Call super() first.

        If you change settings here, a fork still gets those of the original agent.
        """


def check_settings(cls: type, settings: dict[str, object]) -> dict[str, object]:
    """Check the settings of a class, and add the defaults. Raises SettingError."""
    known = _model(cls).model_fields
    if unknown := [name for name in settings if name not in known]:
        default = "it may belong to the model, or to a mixin that this class doesn't include"
        lines = [
            f"unknown setting {name}: {advice(['setting'], name, known, default)}"
            for name in unknown
        ]
        raise SettingError(f"{cls.__name__}: {'; '.join(lines)}")
    try:
        return vars(_model(cls)(**settings))
    except ValidationError as error:
        problem = error.errors()[0]  # without the input, which may contain an API key
    name = str(problem["loc"][0])
    said = problem["msg"].removeprefix("Value error, ")
    remedy = advice(["value"], name)
    raise SettingError(f"{cls.__name__}: {name}: {said}{remedy and '; '}{remedy}")


def settings_of(settings: Settings) -> dict[str, Any]:
    """The settings of an object as they are now, as keywords of its constructor."""
    cls: type = type(settings)
    return {name: getattr(settings, name) for name in _model(cls).model_fields}


def copy_settings(
    original: AnySettings, cls: type[AnySettings], changes: Mapping[str, Any]
) -> AnySettings:
    """Make an object of a class with the settings of another one, apart from some changes."""
    same = {**settings_of(original), **changes}
    twin = cls(**same)
    # `__post_init__` may have changed settings, and would change them twice in a copy of a copy
    vars(twin).update(check_settings(cls, same))
    return twin


@lru_cache(256)  # a program may make a class for each request
def _model(cls: type) -> type[BaseModel]:
    fields = dict[str, Any]()
    for name, kind in _annotations(cls).items():
        if name[0] == "_":
            continue
        fields[name] = (kind, ...)  # required if there's no default
        if hasattr(cls, name):
            default = Field(default_factory=partial(getattr, cls, name))  # copied by validation
            fields[name] = (kind, default)
    config = ConfigDict(strict=True, arbitrary_types_allowed=True, validate_default=True)
    return create_model(cls.__name__, __config__=config, **fields)


@lru_cache(256)
def _annotations(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {name: kind for name, kind in hints.items() if get_origin(kind) is not ClassVar}
