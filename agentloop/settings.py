"""Makes the settings of a class and of all its mixins add up in one typed constructor.

Copy with: nothing else.

Without this, a composed class would silently lose the settings of all but one of its bases.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import Field, dataclass, field
from functools import partial
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class _Typed:
    """Tells checkers and editors what `Settings` does; they look for it on a base class."""


class Settings(_Typed):
    """Every subclass is a keyword-only dataclass; a class attribute changes a setting's default.

    No `eq` and no `repr`: instances are hashable, and print neither transcripts nor keys.
    """

    _sets: ClassVar[set[str]] = set()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            raise TypeError(
                f"{cls.__name__}: __init__ is made from the settings, and yours would be lost in a "
                "subclass; use __post_init__ and call super().__post_init__() in it"
            )
        own = inspect.get_annotations(cls)
        nearest: dict[
            str, Field[Any]
        ] = {}  # of each inherited setting, as the nearest class has it
        for base in reversed(cls.__mro__[1:]):
            fields = base.__dict__.get("__dataclass_fields__", {})
            nearest |= {name: fields[name] for name in base.__dict__.get("_sets", ())}
        cls._sets = {*own, *(name for name in vars(cls) if name in nearest)}
        for name, inherited in nearest.items():
            if name not in cls._sets:
                setattr(cls, name, inherited)
        for name in cls._sets:
            if isinstance(value := vars(cls).get(name), list | dict | set):
                setattr(cls, name, field(default_factory=partial(copy.copy, value)))
        types = {name: inherited.type for name, inherited in nearest.items()} | own
        cls.__annotations__ = types  # dataclass() sees annotated names only
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        cls.__annotations__ = own
