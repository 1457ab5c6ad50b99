"""What the requests of a log used, and what they cost at some prices.

Copy with: transcript.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import fsum
from typing import TypeAlias, TypeGuard

from .messages import AssistantMessage, Record, SideRequest, Summary, Usage
from .transcript import usage_of

PriceOf: TypeAlias = Callable[[str, Usage], float | None]


@dataclass(frozen=True, slots=True)
class Bill:
    """What some requests used. `cost` is None if that of one of them is not known."""

    requests: int
    usage: Usage
    cost: float | None


def bill(log: Iterable[Record], price: PriceOf | None) -> Bill:
    """One bill for all requests of a log."""
    requests = [record for record in log if is_request(record)]
    costs = [cost_of(request, price) for request in requests]
    known = [cost for cost in costs if cost is not None]
    return Bill(len(requests), usage_of(requests), fsum(known) if known == costs else None)


def is_request(record: Record) -> TypeGuard[AssistantMessage | Summary | SideRequest]:
    """True if a record stands for a model request; a summary that no model wrote does not."""
    if isinstance(record, Summary):
        return bool(record.model or record.usage)
    return isinstance(record, AssistantMessage | SideRequest)


def cost_of(
    request: AssistantMessage | Summary | SideRequest, price: PriceOf | None
) -> float | None:
    """What a request cost; None if that is not known. One that nobody answered costs nothing."""
    if request.model is None or request.usage is None:
        return None if request.model or request.usage else 0.0
    return price(request.model, request.usage) if price else None
