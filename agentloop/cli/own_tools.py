"""`--tools mytools.py`: the tools of a user's own file or module."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ..tools import Tool
from .explain import NotFound, load


def load_tools(where: str) -> list[Tool]:
    """All tools at the top of "mytools.py" or "my.module", or those named by "my.module:name".

    A name is that of one tool, or of a list of them. ValueError: why there are none.
    """
    place, _, name = where.rpartition(":")
    if not place or name.endswith(".py"):  # C:\mytools.py has a colon too
        place, name = where, ""
    values: dict[str, Any] = vars(_module(place))
    if not name:
        found = dict.fromkeys(value for value in values.values() if isinstance(value, Tool))
        if not found:
            raise ValueError(f"{place}: there is no tool at the top of it; @tool makes one")
        return list(found)
    if name not in values:
        near = ", ".join(get_close_matches(name, values))
        raise ValueError(f"{place}: there is no {name} in it{f'; there is {near}' if near else ''}")
    value = values[name]
    tools = list(cast(Iterable[Any], value)) if isinstance(value, list | tuple) else [value]
    if not tools or not all(isinstance(each, Tool) for each in tools):
        raise ValueError(f"{place}: {name} is no tool, and no list of tools; @tool makes one")
    return tools


def _module(place: str) -> ModuleType:
    try:
        return load(place)
    except NotFound as error:
        raise ValueError(str(error)) from None
    except SyntaxError as error:
        raise ValueError(f"{error.filename}, line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        file = str(Path(place).resolve()) if place.endswith(".py") else place.replace(".", "/")
        frames = traceback.extract_tb(sys.exc_info()[2])
        theirs = [frame for frame in frames if file in frame.filename.replace("\\", "/")]
        line = f", line {theirs[-1].lineno}" if theirs else ""
        raise ValueError(f"{place}{line}: {type(error).__name__}: {error}") from None
