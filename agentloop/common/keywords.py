"""Answers keywords of other libraries with what to write: `agent.run(prompt, deps=...)`.

Copy with: vocabulary.py.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar, cast

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
            from ..vocabulary import advice

            remedy = advice(["run"], name, known, "set it on the agent: help(Agent) lists settings")
            raise TypeError(f"{function}() has no keyword {name}: {remedy}")
