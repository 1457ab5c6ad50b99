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

from collections.abc import Sequence

from ..loop import Loop
from ..messages import Part, Result, SideRequest
from ..prices import Bill, Prices, bill, price_of
from ..transcript import newest_run, requests_of


class Cost(Loop):
    """Adds up tokens and money; `limit_price=prices` lets `Limits` count the same.

    prices: a `Price` by model name, or a function of (model, Usage) that gives money, or None where
        it knows none; without it, the package genai-prices is asked, if it is installed. A model at
        a local address has no price then, but with `prices=genai_price`.
    """

    prices: Prices | None = None

    @property
    def cost(self) -> float | None:
        """The money for all requests so far; None if that of one is not known."""
        return self.bill.cost

    @property
    def bill(self) -> Bill:
        """All requests so far."""
        return bill(self.log, price_of(self.prices, self.llm))

    @property
    def run_bill(self) -> Bill:
        """The requests of the newest run."""
        return bill(newest_run(self.log), price_of(self.prices, self.llm))

    @property
    def model_bills(self) -> dict[str, Bill]:
        """All requests so far by the model that answered; "" stands for one without a name."""
        requests, price = requests_of(self.log), price_of(self.prices, self.llm)
        return {
            name or "": bill([r for r in requests if r.model == name], price)
            for name in dict.fromkeys(r.model for r in requests)
        }


async def run_counted(agent: Loop, sub: Loop, prompt: str | Sequence[Part]) -> Result:
    """Run a sub-agent in a tool of `agent`, and count its requests there, however it ends.

    A tool gets its agent as `agent: Loop = Depends(current_agent)`.
    """
    start = len(sub.log)
    try:
        return await sub.run(prompt)
    finally:
        for request in requests_of(sub.log[start:]):
            agent.add(SideRequest(request.usage, request.model))
