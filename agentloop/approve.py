"""Asks a function of the program whether a call may run: the `approve=` of a toolkit.

Copy with: tools.py and what it names.
"""

import logging
from typing import Any

from .depends import Function
from .tools import call_function
from .waiting import within

logger = logging.getLogger("agentloop")


async def is_approved(
    approve: Function | None, name: str, arguments: dict[str, Any], *, seconds: float
) -> bool:
    """Whether `approve(name, arguments)` says True in time. True if there is nobody to ask.

    Anything else denies: an error, another value, a late answer.
    """
    return approve is None or await ask(approve, name, arguments, seconds=seconds) is True


async def ask(function: Function, *args: Any, seconds: float) -> Any:
    """What a function answers in time, or None; it has a second to stop after that."""
    try:
        return await within(seconds, call_function(function, *args), grace=1)
    except Exception:
        logger.exception("who was asked for a call failed, which denies it")
        return None
