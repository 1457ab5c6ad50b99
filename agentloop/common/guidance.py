"""Help on the first day: advice for a keyword of another library, and a short `help(Agent)`.

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
    *("load_records", "refuse_if_busy", "request_tokens", "summary_is_due"),
    *("system_text", "token_rate", "tool", "turn_tools", "wait_for_cancelled_run", "waiting_call"),
]

Method = TypeVar("Method", bound=Callable[..., Any])


def advising(method: Method) -> Method:
    """Wrap a method: if you pass a keyword that it doesn't have, it says what to write instead."""
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
    """Raise TypeError for the first keyword that the function doesn't have."""
    for name in keywords:
        if name not in known:
            remedy = advice(["run"], name, known, "set it on the agent: help(Agent) lists settings")
            raise TypeError(f"{function}() has no keyword {name}: {remedy}")


class ShortHelp(ABCMeta):
    """The class of Agent, which lets `help(Agent)` list what programs call, and the seams.

    The settings are in Agent's docstring already, and `help(Loop)` lists what only mixins use.
    """

    def __dir__(cls) -> list[str]:
        hidden = {*signature(cls).parameters, *FOR_MIXINS}
        return [name for name in super().__dir__() if name not in hidden and name[0] != "_"]
