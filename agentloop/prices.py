"""What the requests of a log used, and what they cost at some prices.

Copy with: messages.py, transcript.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from math import fsum
from typing import TypeAlias

from .messages import Record, Usage
from .transcript import ModelRequest, requests_of, usage_of

# where nobody sends a bill: this machine, its network, a name without a dot
LOCAL = r"https?://(127\.|\[::1\]|10\.|192\.168\.|[\w-]+(:\d+)?/)"
PriceOf: TypeAlias = Callable[[str, Usage], float | None]


@dataclass(frozen=True, kw_only=True)
class Price:
    """Money for a million tokens.

    Input that is read from a cache, or written to one, costs as `input` does unless it has a price
    of its own.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """The money for so many tokens, each counted once."""
        money = usage.input_tokens * self.input + usage.output_tokens * self.output
        if self.cached_input is not None:
            money += usage.cached_input_tokens * (self.cached_input - self.input)
        if self.cache_write is not None:
            money += usage.cache_write_tokens * (self.cache_write - self.input)
        return money / 1_000_000


Prices: TypeAlias = Mapping[str, Price] | PriceOf


@dataclass(frozen=True, slots=True)
class Bill:
    """What some requests used. `cost` is None if that of one of them is not known."""

    requests: int
    usage: Usage
    cost: float | None


def bill(log: Iterable[Record], price: PriceOf | None) -> Bill:
    """One bill for all requests of a log, from its newest Fork on."""
    requests = requests_of(log)
    costs = [cost_of(each, price) for each in requests]
    known = [cost for cost in costs if cost is not None]
    return Bill(len(requests), usage_of(requests), fsum(known) if known == costs else None)


def cost_of(request: ModelRequest, price: PriceOf | None) -> float | None:
    """What a request cost; None if that is not known. One that nobody answered costs nothing."""
    if request.model and request.usage:
        return price(request.model, request.usage) if price else None
    return None if request.model or request.usage else 0.0


def price_of(prices: Prices | None = None, llm: object = None) -> PriceOf:
    """A function that gives the money for (model, Usage), or None.

    Without prices it is `genai_price`; but a model at a local address has no price then.
    """
    if prices is None and re.match(LOCAL, f"{getattr(llm, 'base_url', '')}/"):
        prices = {}
    if prices is None or callable(prices):
        return prices or genai_price
    return lambda model, usage: prices[model].cost(usage) if model in prices else None


def genai_price(model: str, usage: Usage) -> float | None:
    """US dollars by the package genai-prices; None if it is not there or does not know the model.

    A provider's name in front (`anthropic/...`) is no part of a model's. It could fetch newer
    prices (`UpdatePrices`); that is not done here.
    """
    try:
        package = import_module("genai_prices")
        tokens = package.Usage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_input_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        return float(package.calc_price(tokens, model.rpartition("/")[2]).total_price)
    except (ImportError, LookupError, ValueError):
        return None
