"""What the requests of a log used, and what they cost at some prices.

Copy with: the core.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import NamedTuple

from ..loop import Loop
from ..messages import RequestRecord, Usage

# where nobody sends a bill: this machine, its network, a name without a dot
LOCAL = r"https?://((127|10|192\.168|172\.(1[6-9]|2\d|3[01]))\.[\d.]+|\[::1\]|[\w-]+)(:\d+)?/"
PriceOf = Callable[[str, Usage], float | None]


class Price(NamedTuple):
    """Money for a million tokens.

    Input that is read from a cache, or written to one, costs as `input` does unless it has a price
    of its own.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """Return the money for so many tokens, each counted once."""
        read, written = usage.cached_input_tokens, usage.cache_write_tokens
        counts = usage.input_tokens - read - written, usage.output_tokens, read, written
        money = (
            n * (self.input if price is None else price)
            for n, price in zip(counts, self, strict=True)
        )
        return sum(money) / 1_000_000


def cost_of(requests: Iterable[RequestRecord], price: PriceOf) -> float | None:
    """Return what some requests cost; None if the price of one is not known.

    A request without a reply costs 0. One whose tokens nobody has counted costs 0 if tokens of its
    model do.
    """
    total = 0.0
    for request in requests:
        model, usage = request.model, request.usage
        cost = None if model or usage else 0.0
        if model:
            tokens = usage or Usage(1, 1)
            # Anthropic's writes for an hour cost 2.0 of input and not 1.25: as if they were more.
            more = round(0.6 * (tokens.extra or {}).get("ephemeral_1h_input_tokens", 0))
            cost = price(model, tokens + Usage(more, cache_write_tokens=more))
            if cost and not usage:
                cost = None
        if cost is None:
            return None
        total += cost
    return total


class Priced(Loop):
    """Knows what requests cost: what Cost and Limits have in common.

    prices: a `Price` by model name. Without it, a model at a local address costs nothing, and so
        does a ScriptedModel that has no other name. For the others the package genai-prices is
        asked, if it is installed. For prices of another kind override `price`.
    """

    prices: Mapping[str, Price] | None = None

    def price(self, model: str, usage: Usage) -> float | None:
        """Return the money for the tokens of a model; None if its price is not known."""
        if self.prices:
            return self.prices[model].cost(usage) if model in self.prices else None
        address = getattr(self.llm, "base_url", "")
        if model == self.llm.model and re.match(LOCAL, f"{address}/"):
            return 0.0
        return genai_price(model, usage)


def genai_price(model: str, usage: Usage) -> float | None:
    """Return US dollars by the package genai-prices; None without it, or for an unknown model.

    "scripted", as a ScriptedModel is called if it has no other name, costs nothing. A provider's
    name in front (`anthropic/...`) is no part of a model's. The package could fetch newer prices
    (`UpdatePrices`); that is not done here.
    """
    if model == "scripted":
        return 0.0
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
