"""Limits for a run: requests, tokens, cost, seconds, tool calls, and failures of one tool.

Copy with: the core, common/nested.py, common/prices.py, common/summary.py.

    class MyAgent(Limits, Agent):
        max_requests = 20             # result.stop_reason is then "limit:requests"

What counts is in the log since the RunStart; a message sent during the run resets nothing. Side
requests count as well: summaries, failed attempts that may be billed, and requests of sub-agents. A
`run()` after a limit or a restart is a new run and counts from zero, so `run("Summarize your
work.")` still works. Nobody knows the tokens of a request before its reply, so the last one may go
beyond a limit of tokens or cost.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Any

from pydantic import PositiveFloat, PositiveInt

from ..common.nested import InnerCall, InnerResult
from ..common.prices import Priced, PriceOf, cost_of
from ..common.summary import Summary
from ..messages import (
    AssistantMessage,
    Message,
    Result,
    Stop,
    ToolCall,
    ToolMessage,
    Usage,
)
from ..model import Request
from ..transcript import (
    Fold,
    Fork,
    Record,
    Records,
    RequestRecord,
    RunStart,
    SideRequest,
    is_request,
    placeholder_result,
    record_of,
)
from ..waiting import T, is_cancelled, wait_for

NOT_RUN = "Not run: the limit of {} is reached. If the run continues, repeat the call if needed."
NO_PRICE = (
    "max_cost: the price of {0!r} is unknown. Install genai-prices, or set "
    "prices={{{0!r}: Price(input=..., output=...)}} with prices per million tokens"
)
REPORT = (
    "Stopped at max_{}={}. Usage: requests {requests}, tokens {tokens:,}, tool calls "
    "{tool_calls}, seconds {seconds:.1f}, cost {cost}."
)
IN_A_TURN = ("seconds", "tokens", "cost")  # also checked before every call


class Limits(Priced):
    """Ends a run at a limit, before the next request. None means no limit.

    If a limit keeps a call from running, the result of the call says so.

    max_requests: how many model requests a run may make, side requests included.
    max_tokens: how many input and output tokens they may have in total.
    max_cost: what they may cost, in the currency of `prices`, by default US dollars. If the price
        of the model is unknown, you get an error before the first request; if that of a sub-agent's
        model is, the run ends after its request.
    max_seconds: how many seconds a run may take. Then requests and calls that still run are
        cancelled. An `approval_callback` has its own `approval_timeout`.
    max_tool_calls: how many calls may run. The model reads why another one didn't. Calls that an
        earlier run left open don't count.
    max_tool_failures: how often one tool may fail in a row, in the order of the results. A call
        that didn't run, because it was denied for example, counts as a failure.
    limit_exempt: names of tools whose calls don't count, and run even if a limit is reached, except
        `max_seconds`: so a done tool can still end the run.
    """

    max_requests: PositiveInt | None = None
    max_tokens: PositiveInt | None = None
    max_cost: PositiveFloat | None = None
    max_seconds: PositiveFloat | None = None
    max_tool_calls: PositiveInt | None = None
    max_tool_failures: PositiveInt | None = None
    limit_exempt: Sequence[str] = ("done",)

    async def call_model(self, request: Request) -> AssistantMessage:
        if not self.running:  # `agent.compact()` between runs
            return await super().call_model(request)
        model = (request.model or self.llm).model
        if self.max_cost and self.price(model, Usage()) is None:
            raise ValueError(NO_PRICE.format(model))
        if kind := self._exceeded_limit():
            raise self._stop(kind)
        reply = await self._in_time(super().call_model(request))
        if reply is None:
            raise self._stop("seconds")
        return reply

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        counted = counted_calls(calls, self.limit_exempt)
        refused = list[ToolCall]()
        if self.max_tool_calls and counted:
            left = self.max_tool_calls - self._run_usage().calls_before(counted)
            refused = counted[max(left, 0) :]
        for call in refused:
            self.record(record_of(call, not_run(call, "tool_calls")))
        result = await super().call_tools([call for call in calls if call not in refused])
        if refused or (counted and self._exceeded_limit() in IN_A_TURN):
            return None  # when it called done, the model didn't know that calls wouldn't run
        return result

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        kind = self._exceeded_limit()
        if kind == "seconds" or (kind in IN_A_TURN and call.name not in self.limit_exempt):
            return not_run(call, kind)
        try:
            result = await self._in_time(super().call_tool(call))
        except CancelledError:
            if is_cancelled():
                raise
            result = None  # the call cancelled itself
        return result or placeholder_result(self.conversation.state_of(call))

    def record(self, record: Record) -> None:
        super().record(record)
        # Compaction sends another request after a summary, even if the summary failed
        failed = isinstance(record, SideRequest) and record.purpose == "compaction"
        if (
            (failed or isinstance(record, Summary))
            and self.running
            and (kind := self._exceeded_limit())
        ):
            raise self._stop(kind)

    def _run_usage(self) -> RunUsage:
        """The usage of this run, with its cost if `max_cost` is set."""
        price = self.price if self.max_cost else None
        return self.fold(RunUsage, price, *self.limit_exempt)

    async def _in_time(self, work: Awaitable[T]) -> T | None:
        """Await the work. Returns None if `max_seconds` is over first."""
        left = self.max_seconds and self.max_seconds - self._run_usage().used["seconds"]
        try:
            return await wait_for(work, left, grace=self.cancel_timeout)
        except TimeoutError:
            if self._exceeded_limit() != "seconds":  # raised by the work itself
                raise
            return None

    def _exceeded_limit(self) -> str | None:
        """The first limit that's reached, or exceeded if it's `max_tool_calls`; None if none is."""
        for kind, used in self._run_usage().used.items():
            limit = getattr(self, f"max_{kind}")
            if limit is None:
                continue
            if kind == "tool_calls":
                limit += 1
            if used is None or used >= limit:
                return kind
        return None

    def _stop(self, kind: str) -> Stop:
        """The Stop for a limit, with the usage and the newest text of the model."""
        report = REPORT.format(kind, getattr(self, f"max_{kind}"), **self._run_usage().used)
        newest = ""
        for record in self.log:
            if isinstance(record, AssistantMessage):
                newest = record.text or newest
        return Stop(f"limit:{kind}", f"{report}\n\n{newest}".strip())


class RunUsage(Fold):
    """What was used since the newest RunStart or Fork of a log."""

    def __init__(self, log: Records, price: PriceOf | None, *exempt: str) -> None:
        super().__init__(log)
        self._price = price
        self._exempt = exempt
        self._begin(time.time())

    def _begin(self, start: float) -> None:
        self._start = time.monotonic() + start - time.time()  # monotonic: the clock may change
        self._tokens = self._requests = self._calls = 0
        self._cost: float | None = 0.0
        self._calls_before = dict[str, int]()  # by call id
        self._failures = Counter[str]()  # consecutive failures, by tool name

    @property
    def used(self) -> dict[str, Any]:
        """The usage by the names of the limits. A cost that isn't known is None."""
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
        elif isinstance(record, ToolMessage | InnerResult):
            result = record.result if isinstance(record, InnerResult) else record
            if result.is_error:
                self._failures[result.tool_name] += 1
            else:
                del self._failures[result.tool_name]  # a Counter returns 0 for missing names
        elif isinstance(record, AssistantMessage):
            for call in counted_calls(record.tool_calls, self._exempt):
                self._calls_before[call.id] = self._calls
                self._calls += 1
        elif isinstance(record, InnerCall):
            self._calls_before[record.call_id] = self._calls
            self._calls += record.name not in self._exempt
        elif isinstance(record, SideRequest):  # the calls of a sub-agent
            self._calls += record.tool_calls
        if is_request(record):
            self._add(record)

    def calls_before(self, calls: Sequence[ToolCall]) -> int:
        """How many calls of the run came before these; negative if an earlier run made them."""
        return self._calls_before.get(calls[0].id, self._calls - len(calls))

    def _add(self, request: RequestRecord) -> None:
        self._requests += 1
        if request.usage:
            self._tokens += request.usage.total_tokens
        cost = self._price and cost_of([request], self._price)
        if self._cost is None or cost is None:
            self._cost = None
        else:
            self._cost += cost


def counted_calls(calls: Sequence[ToolCall], exempt: Sequence[str]) -> list[ToolCall]:
    return [call for call in calls if call.name not in exempt]


def not_run(call: ToolCall, kind: str) -> ToolMessage:
    return call.answer(NOT_RUN.format(kind), is_error=True, origin="denied")
