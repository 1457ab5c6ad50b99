"""Makes the settings of a class and of all its mixins add up in one typed constructor.

Copy with: nothing else.

    class Polite(Settings):
        greeting: str = "hello"       # a setting, and its default

    class Loud(Polite):
        greeting = "HELLO"            # another default

    Loud(greeting="hey")

Defaults stay in the classes, so Python's own rule for inherited attributes says which one counts.
Dataclasses would copy them from base to base, and a composed class would lose some.
"""

from __future__ import annotations

import copy
from difflib import get_close_matches
from functools import cache, partial
from inspect import get_annotations
from typing import Any, ClassVar, cast, dataclass_transform, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model


class SettingError(TypeError, ValueError):
    """A setting is missing, unknown, or not what its annotation says."""


@dataclass_transform(kw_only_default=True, eq_default=False)
class Settings:
    """Each annotated attribute of a subclass is a setting: a keyword of its constructor.

    Lists, dicts and sets that are defaults are copied for each instance. Raises SettingError.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            raise TypeError(
                f"{cls.__name__}: __init__ is made from the settings, and yours would be lost in a "
                "subclass; use __post_init__ and call super().__post_init__() in it"
            )
        known = {name for base in cls.__mro__ for name in get_annotations(base)}
        for name, value in vars(cls).items():
            if name[0] != "_" and name not in known and not hasattr(value, "__get__"):
                for near in get_close_matches(name, known, 1, 0.8):
                    raise TypeError(f"{cls.__name__}: {name} is no setting: do you mean {near}?")

    def __init__(self, **settings: Any) -> None:
        cls: Any = type(self)
        try:
            vars(self).update(vars(_model(cls)(**settings)))
        except ValidationError as error:
            wrong = error.errors()[0]  # whose input may hold a key, and is not shown
            place = ".".join(map(str, wrong["loc"]))
            raise SettingError(f"{cls.__name__}: {place}: {wrong['msg']}") from None
        self.__post_init__()

    def __post_init__(self) -> None:
        """Called once the settings are set. An override calls super().__post_init__() first."""


@cache
def _model(cls: Any) -> type[BaseModel]:
    """The pydantic model that checks the settings of a class."""
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # a name that only checkers see
        hints = {name: Any for each in cls.__mro__ for name in get_annotations(each)}
    fields: dict[str, Any] = {}
    for name, kind in hints.items():
        if get_origin(kind) is not ClassVar:
            default = getattr(cls, name, ...)
            if isinstance(default, list | dict | set):
                default = Field(default_factory=partial(copy.copy, cast(Any, default)))
            fields[name] = (kind, default)
    config = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)
    return create_model(cls.__name__, __config__=config, **fields)
