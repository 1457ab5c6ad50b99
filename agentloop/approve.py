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
    if approve is None:
        return True
    try:
        answer = await within(seconds, call_function(approve, name, arguments), grace=0)
    except Exception:
        logger.exception("approve failed, which denies %s", name)
        return False
    return answer is True
