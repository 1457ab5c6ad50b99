"""Says what an agent's requests used and cost: per model, per run, and in all.

Copy with: the core, prices.py.

    class MyAgent(Cost, Agent): ...

    agent = MyAgent(llm=llm, prices={"my-model": Price(input=2, output=8, cached_input=0.2)})
    agent.usage, agent.cost, agent.run_bill, agent.model_bills

All is added up from the log when it is asked for, so a session knows it after a restart. Without
`prices`, those of the optional package genai-prices are used, in US dollars; nothing is downloaded.
A request whose price is not known costs None, not zero, and so does what it is a part of; its
tokens are counted all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from ..loop import Loop
from ..messages import Part, Result, SideRequest, Usage
from ..prices import Bill, PriceOf, bill, is_request
from ..transcript import newest_run


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


class Cost(Loop):
    """Adds up tokens and money; `limit_price=price_of(prices)` lets `Limits` count the same.

    prices: a `Price` by model name, or a function of (model, Usage) that gives money, or None where
        it knows none; without it, the package genai-prices is asked, if it is installed.
    """

    prices: Mapping[str, Price] | PriceOf | None = None

    @property
    def cost(self) -> float | None:
        """The money for all requests so far; None if that of one is not known."""
        return self.bill.cost

    @property
    def bill(self) -> Bill:
        """All requests so far."""
        return bill(self.log, price_of(self.prices))

    @property
    def run_bill(self) -> Bill:
        """The requests of the newest run."""
        return bill(newest_run(self.log), price_of(self.prices))

    @property
    def model_bills(self) -> dict[str, Bill]:
        """All requests so far by the model that answered; "" stands for one without a name."""
        requests = [*filter(is_request, self.log)]
        return {
            name or "": bill([r for r in requests if r.model == name], price_of(self.prices))
            for name in dict.fromkeys(r.model for r in requests)
        }


def price_of(prices: Mapping[str, Price] | PriceOf | None = None) -> PriceOf:
    """A function that gives the money for (model, Usage), or None; without prices, genai_price."""
    if prices is None or callable(prices):
        return prices or genai_price
    return lambda model, usage: prices[model].cost(usage) if model in prices else None


def genai_price(model: str, usage: Usage) -> float | None:
    """US dollars by the package genai-prices; None if it is not there or does not know the model.

    It could fetch newer prices (`UpdatePrices`); that is not done here.
    """
    try:
        package = import_module("genai_prices")
        tokens = package.Usage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_input_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        return float(package.calc_price(tokens, model).total_price)
    except (ImportError, LookupError, ValueError):
        return None


async def run_counted(agent: Loop, sub: Loop, prompt: str | Sequence[Part]) -> Result:
    """Run a sub-agent in a tool of `agent`, and count its requests there, however it ends.

    A tool gets its agent as `agent: Loop = Depends(current_agent)`.
    """
    start = len(sub.log)
    try:
        return await sub.run(prompt)
    finally:
        for request in filter(is_request, sub.log[start:]):
            agent.add(SideRequest(request.usage, request.model))
