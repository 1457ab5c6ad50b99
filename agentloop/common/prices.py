"""The usage and cost of the requests of a log.

Copy with: the core.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import NamedTuple

from ..loop import Loop
from ..messages import Usage
from ..transcript import RequestRecord

# hosts without charge: this machine, private networks, names without a dot
LOCAL = r"https?://((127|10|192\.168|172\.(1[6-9]|2\d|3[01]))\.[\d.]+|\[::1\]|[\w-]+)(:\d+)?/"
PriceOf = Callable[[str, Usage], float | None]


class Price(NamedTuple):
    """Prices per million tokens.

    Cached input, read or written, has the price of `input` unless a separate price is specified.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """Return the cost of a usage. Cached tokens are not counted as uncached input."""
        read, written = usage.cached_input_tokens, usage.cache_write_tokens
        counts = usage.input_tokens - read - written, usage.output_tokens, read, written
        money = (
            n * (self.input if price is None else price)
            for n, price in zip(counts, self, strict=True)
        )
        return sum(money) / 1_000_000


def cost_of(requests: Iterable[RequestRecord], price: PriceOf) -> float | None:
    """Return the cost of requests, or None if a price is unknown.

    Requests without a reply cost 0, as do requests without reported usage to a free model.
    """
    total = 0.0
    for request in requests:
        model, usage = request.model, request.usage
        cost = None if model or usage else 0.0
        if model:
            tokens = usage or Usage(1, 1)
            # Anthropic's one-hour cache writes cost 2.0 times input instead of 1.25.
            more = round(0.6 * (tokens.extra or {}).get("ephemeral_1h_input_tokens", 0))
            cost = price(model, tokens + Usage(more, cache_write_tokens=more))
            if cost and not usage:
                cost = None
        if cost is None:
            return None
        total += cost
    return total


class Priced(Loop):
    """Base of Cost and Limits: determines the cost of requests.

    prices: a `Price` by model name. By default, models at a local address are free, as is a
        ScriptedModel with its default name; other prices are provided by the package genai-prices,
        if installed. Override `price` for different pricing.

    The first price from genai-prices imports the package, which takes up to 0.1 seconds. Servers
    avoid this delay of their first reply with `import genai_prices` at the start.
    """

    prices: Mapping[str, Price] | None = None

    def price(self, model: str, usage: Usage) -> float | None:
        """Return the cost of a model's usage, or None for an unknown price."""
        if self.prices:
            return self.prices[model].cost(usage) if model in self.prices else None
        address = getattr(self.llm, "base_url", "")
        if model == self.llm.model and re.match(LOCAL, f"{address}/"):
            return 0.0
        return genai_price(model, usage)


def genai_price(model: str, usage: Usage) -> float | None:
    """Return US dollars from genai-prices; None without this package, or for an unknown model.

    "scripted", the default name of a ScriptedModel, costs nothing. A provider prefix
    (`anthropic/...`) is ignored. Newer prices, which the package supports (`UpdatePrices`), are not
    downloaded.
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
