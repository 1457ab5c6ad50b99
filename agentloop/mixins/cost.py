"""Tokens and cost of an agent's requests: by model, by run, and in total.

Copy with: the core, common/prices.py.

    class MyAgent(Cost, Agent): ...

    agent = MyAgent(llm=llm, prices={"my-model": Price(input=2, output=8, cached_input=0.2)})
    agent.usage, agent.cost, agent.run_bill, agent.model_bills

The sums are computed from the log on access, so a session has them after a restart. Without
`prices`, the optional package genai-prices provides prices in US dollars, without any download; a
local model is then free of charge. If the price of a request is unknown, the cost of the request
and of every sum that includes the request is None, not zero. Tokens are counted in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..common.prices import Priced, cost_of
from ..messages import RequestRecord, Usage
from ..transcript import is_request, usage_of


class Bill(NamedTuple):
    """The usage and cost of requests. `cost` is None if the price of a request is unknown."""

    requests: int
    usage: Usage
    cost: float | None


class Cost(Priced):
    """Adds up tokens and cost. `Limits` uses the same `prices`."""

    @property
    def cost(self) -> float | None:
        """Return the cost of all requests so far; None if the price of a request is unknown."""
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
        """Return a bill per model name. Requests without a model name are under ""."""
        by_model: dict[str, list[RequestRecord]] = {}
        for request in self.conversation.requests:
            by_model.setdefault(request.model or "", []).append(request)
        return {name: self._bill(requests) for name, requests in by_model.items()}

    def _bill(self, requests: Sequence[RequestRecord]) -> Bill:
        cost = cost_of(requests, self.price)
        return Bill(len(requests), usage_of(requests), cost)
