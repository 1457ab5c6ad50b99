"""Says what an agent's requests used and cost: per request, per model, per run, and in all.

Copy with: the core, bills.py.

    class MyAgent(Cost, Agent): ...

    agent = MyAgent(llm=llm, prices={"my-model": Price(input=2, output=8, cached_input=0.2)})
    agent.usage, agent.cost, agent.run_bill, agent.model_bills

All is added up from the log when it is asked for, so a session knows it after a restart. Without
`prices`, those that the optional package genai-prices brings with it are used, in US dollars;
nothing is ever downloaded. A request whose price is not known costs None, not zero, and so does
what it is a part of; tokens are counted all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from importlib import import_module
from math import inf
from typing import Any

from ..bills import Bill, PriceOf, add_up, bills, newest_run
from ..events import UsageEvent
from ..loop import Loop
from ..messages import AssistantMessage, Part, Result, SideRequest, Summary, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money for a million tokens; what is read from a cache or written to it costs as `input` does
    unless it has a price of its own."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        prices = astuple(self)
        if None in prices[:2] or not all(p is None or 0 <= p < inf for p in prices):
            raise ValueError(f"a price is money for a million tokens, 0 or more; not {self}")

    def cost(self, usage: Usage) -> float:
        """What so many tokens cost, each counted once."""
        plain, read, written = split_input(usage)
        read_price = self.input if self.cached_input is None else self.cached_input
        write_price = self.input if self.cache_write is None else self.cache_write
        money = plain * self.input + read * read_price + written * write_price
        return (money + usage.output_tokens * self.output) / 1_000_000


class Cost(Loop):
    """Adds up tokens and money; `limit_price=price_of(prices)` lets `Limits` count the same.

    prices: a `Price` by model name, or a function of (model, Usage) that gives money, or None where
        it knows none; without it, the package genai-prices is asked, if it is installed.
    """

    prices: Mapping[str, Price] | PriceOf | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        price_of(self.prices)

    @property
    def cost(self) -> float | None:
        """What all requests so far cost; None if that is not known of one."""
        return self.bill.cost

    @property
    def bill(self) -> Bill:
        """All requests so far."""
        return add_up(bills(self.log, price_of(self.prices)))

    @property
    def run_bill(self) -> Bill:
        """The requests of the newest run."""
        return add_up(bills(newest_run(self.log), price_of(self.prices)))

    @property
    def model_bills(self) -> dict[str, Bill]:
        """All requests so far by the model that answered; "" is one without a name."""
        items = bills(self.log, price_of(self.prices))
        models = dict.fromkeys(model for model, _ in items)
        return {name: add_up(item for item in items if item[0] == name) for name in models}


def price_of(prices: Mapping[str, Price] | PriceOf | None = None) -> PriceOf:
    """A function that gives the money for (model, Usage), or None. TypeError: these are no prices.

    Without prices it is the one that asks genai-prices.
    """
    if prices is None:
        return genai_price
    if callable(prices):
        return prices
    values: Any = getattr(prices, "values", lambda: [None])()
    if not all(isinstance(price, Price) for price in values):
        raise TypeError(f"prices= takes {{model: Price(...)}} or a function, not {prices!r:.80}")
    return lambda model, usage: prices[model].cost(usage) if model in prices else None


@lru_cache(4096)
def genai_price(model: str, usage: Usage) -> float | None:
    """US dollars by the package genai-prices; None if it is not there or does not know the model.

    It could fetch newer prices (`UpdatePrices`); that is not done here.
    """
    plain, read, written = split_input(usage)
    try:
        package = import_module("genai_prices")
        tokens = package.Usage(
            input_tokens=plain + read + written,
            cache_read_tokens=read,
            cache_write_tokens=written,
            output_tokens=usage.output_tokens,
        )
        return float(package.calc_price(tokens, model).total_price)
    except (ImportError, LookupError):
        return None


def split_input(usage: Usage) -> tuple[int, int, int]:
    """The input tokens at the full price, read from a cache, and written to one."""
    read = min(usage.cached_input_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - read)
    return usage.input_tokens - read - written, read, written


async def run_counted(agent: Loop, sub: Loop, prompt: str | Sequence[Part]) -> Result:
    """Run a sub-agent in a tool of `agent`, and count its requests there, however it ends.

    A tool gets its agent as `agent: Loop = Depends(current_agent)`.
    """
    start = len(sub.log)
    try:
        return await sub.run(prompt)
    finally:
        for record in sub.log[start:]:
            if isinstance(record, AssistantMessage | Summary | SideRequest):
                agent.record(SideRequest(record.usage, model=record.model))
                if record.usage is not None:
                    agent.emit(UsageEvent(record.usage, record.model))
