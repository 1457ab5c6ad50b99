"""What an agent's requests have cost: in total, in the newest run, and by model.

Copy with: the core, common/prices.py.

    class MyAgent(Cost, Agent): ...

    agent = MyAgent(llm=llm, prices={"my-model": Price(input=2, output=8, cached_input=0.2)})
    agent.usage, agent.cost, agent.run_bill, agent.model_bills

The totals are computed from the log whenever you read them, so they survive a restart.
`clear_history` sets them to zero, and `load_history` to what the loaded messages have used: if you
bill users, read the cost before you call one of them. If you don't set `prices`, the package
genai-prices gives them in US dollars, if it's installed (it downloads nothing), and local models
are free. If the price of a request is unknown, its cost is None, not zero, and so is every total
that includes it. Tokens always count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..common.prices import Priced, cost_of
from ..messages import Usage
from ..transcript import RequestRecord, is_request, usage_of


class Bill(NamedTuple):
    """What several requests used and cost. `cost` is None if the price of one is unknown."""

    requests: int
    usage: Usage
    cost: float | None


class Cost(Priced):
    """Adds up usage and cost. `Limits` uses the same `prices`."""

    @property
    def cost(self) -> float | None:
        """What all requests have cost so far; None if a price is unknown."""
        return self.bill.cost

    @property
    def bill(self) -> Bill:
        """The bill of all requests so far."""
        return self._bill(self.conversation.requests)

    @property
    def run_bill(self) -> Bill:
        """The bill of the newest run."""
        return self._bill([record for record in self.conversation.run if is_request(record)])

    @property
    def model_bills(self) -> dict[str, Bill]:
        """The bills by model name; "" for requests whose model isn't known."""
        by_model: dict[str, list[RequestRecord]] = {}
        for request in self.conversation.requests:
            by_model.setdefault(request.model or "", []).append(request)
        return {name: self._bill(requests) for name, requests in by_model.items()}

    def _bill(self, requests: Sequence[RequestRecord]) -> Bill:
        cost = cost_of(requests, self.price)
        return Bill(len(requests), usage_of(requests), cost)
