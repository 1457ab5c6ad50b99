"""What the requests of a log have cost.

Copy with: the core.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import NamedTuple

from ..loop import Loop
from ..messages import Usage
from ..transcript import RequestRecord

# hosts that charge nothing: this machine, private networks, names that have no dot
LOCAL = r"https?://((127|10|192\.168|172\.(1[6-9]|2\d|3[01]))\.[\d.]+|\[::1\]|[\w-]+)(:\d+)?/"
PriceOf = Callable[[str, Usage], float | None]


class Price(NamedTuple):
    """Prices per million tokens. Cached input, read or written, costs what `input` costs unless
    you give it a price of its own.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def cost(self, usage: Usage) -> float:
        """What a usage costs. Cached tokens don't count as uncached input, too."""
        read, written = usage.cached_input_tokens, usage.cache_write_tokens
        counts = usage.input_tokens - read - written, usage.output_tokens, read, written
        money = (
            n * (self.input if price is None else price)
            for n, price in zip(counts, self, strict=True)
        )
        return sum(money) / 1_000_000


def cost_of(requests: Iterable[RequestRecord], price: PriceOf) -> float | None:
    """What requests cost in total; None if a price or the tokens of a request aren't known.

    A request that failed before anything was billed costs 0. So does any request to a free model,
    even if its usage isn't reported.
    """
    total = 0.0
    for request in requests:
        model, usage = request.model, request.usage
        cost = None if model or usage else 0.0
        if model:
            tokens = usage or Usage(1, 1)
            # Anthropic charges 2.0 times input for a one-hour cache write, and 1.25 for others
            more = round(0.6 * (tokens.extra or {}).get("ephemeral_1h_input_tokens", 0))
            cost = price(model, tokens + Usage(more, cache_write_tokens=more))
            if cost and not usage:
                cost = None
        if cost is None:
            return None
        total += cost
    return total


class Priced(Loop):
    """The base of Cost and Limits, which knows what a request costs.

    prices: a `Price` for each model name. If you set none, prices come from the package
        genai-prices, if it's installed; a model at a local address is free, and so is a
        ScriptedModel that has its default name. To compute prices in another way, override `price`.

    The first price imports genai-prices, which takes up to 0.1 seconds. In a server, write `import
    genai_prices` at the top, so that the first reply needn't wait for it.
    """

    prices: Mapping[str, Price] | None = None

    def price(self, model: str, usage: Usage) -> float | None:
        """What a usage of this model costs; None if the price is unknown."""
        if self.prices:
            return self.prices[model].cost(usage) if model in self.prices else None
        address = getattr(self.llm, "base_url", "")
        if model == self.llm.model and re.match(LOCAL, f"{address}/"):
            return 0.0
        return genai_price(model, usage)


def genai_price(model: str, usage: Usage) -> float | None:
    """Ask genai-prices for a cost in US dollars; None if it isn't installed or has no price.

    "scripted", the default name of a ScriptedModel, costs nothing. A provider prefix
    (`anthropic/...`) is ignored. Newer prices aren't downloaded, though the package can do that
    (`UpdatePrices`).
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
