"""What the requests of a log used, and what they cost at some prices.

Copy with: messages.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import TypeAlias, TypeGuard

from .messages import AssistantMessage, Record, RunStart, SideRequest, Summary, Usage

logger = logging.getLogger("agentloop")

PriceOf: TypeAlias = Callable[[str, Usage], float | None]


@dataclass(frozen=True, slots=True)
class Bill:
    """What some requests used. `cost` is None if that of one of them is not known."""

    requests: int
    usage: Usage
    cost: float | None


def bills(log: Iterable[Record], price: PriceOf) -> list[tuple[str, Bill]]:
    """Each request of a log: the model that answered, and what it used and cost."""
    requests = filter(is_request, log)
    return [(r.model or "", Bill(1, r.usage or Usage(), cost_of(r, price))) for r in requests]


def is_request(record: Record) -> TypeGuard[AssistantMessage | Summary | SideRequest]:
    """Whether a record stands for a model request; a summary that nobody wrote does not."""
    if isinstance(record, Summary):
        return bool(record.model or record.usage)
    return isinstance(record, AssistantMessage | SideRequest)


def add_up(items: Iterable[tuple[str, Bill]]) -> Bill:
    """One bill for all of these."""
    parts = [bill for _, bill in items]
    costs = [bill.cost for bill in parts]
    return Bill(
        sum(bill.requests for bill in parts),
        sum((bill.usage for bill in parts), Usage()),
        None if None in costs else fsum(filter(None, costs)),
    )


def newest_run(log: Sequence[Record]) -> Sequence[Record]:
    """The records of the newest run."""
    places = (at for at in range(len(log) - 1, -1, -1) if isinstance(log[at], RunStart))
    return log[next(places, len(log)) :]


def cost_of(request: AssistantMessage | Summary | SideRequest, price: PriceOf) -> float | None:
    """What a request cost; None if that is not known. One that nobody answered costs nothing."""
    if request.model is None or request.usage is None:
        return None if request.model or request.usage else 0.0
    try:
        cost = price(request.model, request.usage)
        money = None if cost is None else float(cost)
    except Exception:
        logger.warning("what a request to %s cost is not known", request.model, exc_info=True)
        return None
    return money if money is not None and 0 <= money < inf else None
