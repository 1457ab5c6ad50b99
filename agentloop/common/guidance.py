"""What helps on the first day: answers to keywords of other libraries, and a short `help(Agent)`.

Copy with: settings.py and its imports.
"""

from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar, cast

from ..messages import advice

FOR_MIXINS = [
    *("active_run", "add", "add_note", "apply_summary", "conversation", "emit", "fold", "listened"),
    *("load_records", "refuse_if_busy", "request_tokens", "state_to_decide", "system_text", "tool"),
    *("turn_tools", "wait_for_cancelled_run", "waiting_call"),
]

Method = TypeVar("Method", bound=Callable[..., Any])


def advising(method: Method) -> Method:
    """Return a method that says what to write instead of a keyword that it doesn't have."""
    call: Any = method
    known = signature(method).parameters

    @wraps(method)
    def checked(*args: object, **keywords: object) -> object:
        check_keywords(method.__name__, keywords, known)
        return call(*args, **keywords)

    @wraps(method)
    async def checked_async(*args: object, **keywords: object) -> object:
        check_keywords(method.__name__, keywords, known)
        return await call(*args, **keywords)

    return cast(Method, checked_async if iscoroutinefunction(method) else checked)


def check_keywords(function: str, keywords: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise TypeError for the first keyword that a function of an agent doesn't have."""
    for name in keywords:
        if name not in known:
            remedy = advice(["run"], name, known, "set it on the agent: help(Agent) lists settings")
            raise TypeError(f"{function}() has no keyword {name}: {remedy}")


class ShortHelp(ABCMeta):
    """The class of Agent: `help(Agent)` lists what programs call, and the seams.

    It leaves out the settings, which the docstring describes, and what only mixins use, which
    `help(Loop)` lists.
    """

    def __dir__(cls) -> list[str]:
        hidden = {*signature(cls).parameters, *FOR_MIXINS}
        return [name for name in super().__dir__() if name not in hidden and name[0] != "_"]
