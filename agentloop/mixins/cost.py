"""Says what an agent's requests used and cost: per model, per run, and in all.

Copy with: the core, common/prices.py.

    class MyAgent(Cost, Agent): ...

    agent = MyAgent(llm=llm, prices={"my-model": Price(input=2, output=8, cached_input=0.2)})
    agent.usage, agent.cost, agent.run_bill, agent.model_bills

All is added up from the log when it is asked for, so a session knows it after a restart. Without
`prices`, those of the optional package genai-prices are used, in US dollars; nothing is downloaded.
A local model costs nothing then. The cost of a request is None, not zero, if its price is not
known, and so is every sum that it is a part of. Its tokens are counted all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..common.prices import Priced, cost_of
from ..messages import RequestRecord, Usage
from ..transcript import is_request, usage_of


class Bill(NamedTuple):
    """What some requests used. `cost` is None if the price of one of them is not known."""

    requests: int
    usage: Usage
    cost: float | None


class Cost(Priced):
    """Adds up tokens and money. `Limits` goes by the same `prices`."""

    @property
    def cost(self) -> float | None:
        """Return the money for all requests so far; None if the price of one is not known."""
        return self.bill.cost

    @property
    def bill(self) -> Bill:
        """Return the bill of all requests so far."""
        return self._bill(self.conversation.requests)

    @property
    def run_bill(self) -> Bill:
        """Return the bill of the newest run."""
        return self._bill([each for each in self.conversation.run if is_request(each)])

    @property
    def model_bills(self) -> dict[str, Bill]:
        """Return a bill for each model, by name. Requests that name no model are under ""."""
        by_model: dict[str, list[RequestRecord]] = {}
        for request in self.conversation.requests:
            by_model.setdefault(request.model or "", []).append(request)
        return {name: self._bill(requests) for name, requests in by_model.items()}

    def _bill(self, requests: Sequence[RequestRecord]) -> Bill:
        cost = cost_of(requests, self.price)
        return Bill(len(requests), usage_of(requests), cost)
