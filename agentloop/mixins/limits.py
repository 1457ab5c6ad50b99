"""Ends a run at a limit of requests, tokens, money, time, tool calls, or failures of one tool.

Copy with: the core, common/prices.py.

    class MyAgent(Limits, Agent):
        max_requests = 20             # result.stop_reason is then "limit:requests"

All is counted in the log, from the run's RunStart on. A message that is sent into the run resets
nothing. Side requests count, too: those for summaries, failed attempts that may cost, and those of
sub-agents. A `run()` that goes on after a limit or a restart is a new run and counts from zero:
`run("Say briefly what you have done.")` asks for a summary. The tokens of a request are known only
from its reply, so the request that reaches a limit of tokens or money may go beyond it.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any

from pydantic import PositiveFloat, PositiveInt

from ..common.prices import Priced, PriceOf, cost_of
from ..loop import Request
from ..messages import (
    AssistantMessage,
    Fork,
    Message,
    Record,
    RequestRecord,
    Result,
    RunStart,
    SideRequest,
    Stop,
    Summary,
    ToolCall,
    ToolMessage,
    Usage,
)
from ..transcript import Fold, Records, is_request, placeholder_result
from ..waiting import T, is_cancelled, wait_for

NOT_RUN = "Not run: the limit of {} is reached. If the run goes on and needs this call, ask again."
NO_PRICE = (
    "max_cost: the price of {0!r} is not known. Install genai-prices, or set "
    "prices={{{0!r}: Price(input=..., output=...)}}, which is money for a million tokens"
)
REPORT = (
    "Stopped at max_{}={}. Used until then: requests {requests}, tokens {tokens:,}, tool calls "
    "{tool_calls}, seconds {seconds:.1f}, cost {cost}."
)
IN_A_TURN = ("seconds", "tokens", "cost")  # these are checked before each call, too


class Limits(Priced):
    """Ends a run that has reached a limit, before its next request. None is no limit.

    A call that a limit keeps from running has a result that says so.

    max_requests: model requests, side requests included.
    max_tokens: input and output tokens of all requests together.
    max_cost: money, in the currency of `prices`: US dollars without them. If the price of the model
        is not known, that is an error before the first request; if that of a sub-agent is not
        known, the run ends after its request.
    max_seconds: seconds since the run began. A request or a call that is under way is stopped then.
    max_tool_calls: calls that run. Further calls do not run, and the model reads why. Calls that an
        earlier run left open are not counted.
    max_tool_failures: failures of one tool in a row, in the order of their results. A call that did
        not run, because it was denied for example, counts as one.
    limit_exempt: names of tools whose calls do not count. They run even if a limit other than
        `max_seconds` is reached, as a done tool has to.
    """

    max_requests: PositiveInt | None = None
    max_tokens: PositiveInt | None = None
    max_cost: PositiveFloat | None = None
    max_seconds: PositiveFloat | None = None
    max_tool_calls: PositiveInt | None = None
    max_tool_failures: PositiveInt | None = None
    limit_exempt: Sequence[str] = ("done",)

    async def call_model(self, request: Request) -> AssistantMessage:
        model = (request.model or self.llm).model
        if self.max_cost and self.price(model, Usage()) is None:
            raise ValueError(NO_PRICE.format(model))
        if kind := self._reached():
            raise self._stop(kind)
        reply = await self._in_time(super().call_model(request))
        if reply is None:
            raise self._stop("seconds")
        return reply

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        counted = [call for call in calls if call.name not in self.limit_exempt]
        refused = list[ToolCall]()
        if self.max_tool_calls:
            used = self._spent()["tool_calls"] - len(counted)  # this turn's are in the log already
            refused = counted[max(self.max_tool_calls - used, 0) :]
        for call in refused:
            self.record(not_run(call, "tool_calls"))
        result = await super().call_tools([call for call in calls if call not in refused])
        if refused or (counted and self._reached() in IN_A_TURN):
            return None  # the model called its task done before it knew which calls did not run
        return result

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        kind = self._reached()
        if kind == "seconds" or (kind in IN_A_TURN and call.name not in self.limit_exempt):
            return not_run(call, kind)
        try:
            result = await self._in_time(super().call_tool(call))
        except CancelledError:
            if is_cancelled():
                raise
            result = None  # the call has cancelled itself
        return result or placeholder_result(self.conversation.states[call.id])

    def record(self, record: Record) -> None:
        super().record(record)
        # Compaction sends a request after its summary, and after one that failed.
        failed = isinstance(record, SideRequest) and record.purpose == "compaction"
        if (failed or isinstance(record, Summary)) and self.running and (kind := self._reached()):
            raise self._stop(kind)

    def _spent(self) -> dict[str, Any]:
        """Return what this run has used; its cost only if `max_cost` asks for it."""
        price = self.price if self.max_cost else None
        return self.fold(Spent, price, *self.limit_exempt).used

    async def _in_time(self, work: Awaitable[T]) -> T | None:
        """Return what the work returns, or None if `max_seconds` are over before."""
        left = self.max_seconds and self.max_seconds - self._spent()["seconds"]
        try:
            return await wait_for(left, work, grace=self.cancel_timeout)
        except TimeoutError:
            if self._reached() != "seconds":  # the work itself has raised this
                raise
            return None

    def _reached(self) -> str | None:
        """Return the first limit reached, or None. `max_tool_calls` counts once it is exceeded."""
        for kind, used in self._spent().items():
            most = getattr(self, f"max_{kind}")
            if most is None:
                continue
            if kind == "tool_calls":
                most += 1
            if used is None or used >= most:
                return kind
        return None

    def _stop(self, kind: str) -> Stop:
        """Build the Stop of a limit: what was used, and the newest text of the model."""
        report = REPORT.format(kind, getattr(self, f"max_{kind}"), **self._spent())
        newest = ""
        for record in self.log:
            if isinstance(record, AssistantMessage):
                newest = record.text or newest
        return Stop(f"limit:{kind}", f"{report}\n\n{newest}".strip())


class Spent(Fold):
    """What the newest run of a log has used."""

    def __init__(self, log: Records, price: PriceOf | None, *exempt: str) -> None:
        super().__init__(log)
        self._price = price
        self._exempt = exempt
        self._begin(time.time())

    def _begin(self, start: float) -> None:
        self._start = time.monotonic() + start - time.time()  # the clock may be set meanwhile
        self._tokens = self._requests = self._calls = 0
        self._cost: float | None = 0.0
        self._failures = Counter[str]()  # in a row, by tool

    @property
    def used(self) -> dict[str, Any]:
        """Return what was used, by the names of the limits. A cost of None is not known."""
        return {
            "seconds": time.monotonic() - self._start,
            "tokens": self._tokens,
            "cost": self._cost,
            "requests": self._requests,
            "tool_calls": self._calls,
            "tool_failures": max(self._failures.values(), default=0),
        }

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, RunStart | Fork):
            self._begin(record.at)
        elif isinstance(record, ToolMessage):
            if record.is_error:
                self._failures[record.tool_name] += 1
            else:
                del self._failures[record.tool_name]  # a Counter has 0 for what is not there
        elif isinstance(record, AssistantMessage):
            counted = [call for call in record.tool_calls if call.name not in self._exempt]
            self._calls += len(counted)
        elif isinstance(record, SideRequest):  # the calls of a sub-agent
            self._calls += record.tool_calls
        if is_request(record):
            self._add(record)

    def _add(self, request: RequestRecord) -> None:
        """Add what a request used."""
        self._requests += 1
        if request.usage:
            self._tokens += request.usage.total_tokens
        cost = self._price and cost_of([request], self._price)
        if self._cost is None or cost is None:
            self._cost = None
        else:
            self._cost += cost


def not_run(call: ToolCall, kind: str) -> ToolMessage:
    """Answer a call that a limit keeps from running."""
    return call.answer(NOT_RUN.format(kind), is_error=True, origin="denied")
