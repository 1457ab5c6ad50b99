"""Token usage and cost of an agent's requests: by model, by run, and in total.

Copy with: the core, common/prices.py.

    class MyAgent(Cost, Agent): ...

    agent = MyAgent(llm=llm, prices={"my-model": Price(input=2, output=8, cached_input=0.2)})
    agent.usage, agent.cost, agent.run_bill, agent.model_bills

Totals are computed from the log on access, and therefore available after restarting a session.
Without `prices`, the optional package genai-prices provides prices in US dollars, without
downloads; local models are then free of charge. With an unknown price, the cost of the request and
of all totals including the request is None, not zero. Tokens are always counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..common.prices import Priced, cost_of
from ..messages import Usage
from ..transcript import RequestRecord, is_request, usage_of


class Bill(NamedTuple):
    """The usage and cost of several requests. An unknown price of a request makes `cost` None."""

    requests: int
    usage: Usage
    cost: float | None


class Cost(Priced):
    """Calculates total usage and cost. `Limits` uses the same `prices`."""

    @property
    def cost(self) -> float | None:
        """Return the total cost of all previous requests; None if a price is unknown."""
        return self.bill.cost

    @property
    def bill(self) -> Bill:
        """Return the bill of all previous requests."""
        return self._bill(self.conversation.requests)

    @property
    def run_bill(self) -> Bill:
        """Return the bill of the newest run."""
        return self._bill([record for record in self.conversation.run if is_request(record)])

    @property
    def model_bills(self) -> dict[str, Bill]:
        """Return bills by model name. The name of requests without a model name is ""."""
        by_model: dict[str, list[RequestRecord]] = {}
        for request in self.conversation.requests:
            by_model.setdefault(request.model or "", []).append(request)
        return {name: self._bill(requests) for name, requests in by_model.items()}

    def _bill(self, requests: Sequence[RequestRecord]) -> Bill:
        cost = cost_of(requests, self.price)
        return Bill(len(requests), usage_of(requests), cost)
