"""Ends a run at a limit of requests, tokens, money, time, tool calls, or failures of one tool.

Copy with: the core, bills.py.

    class MyAgent(Limits, Agent):
        max_requests = 20             # result.stop_reason is then "limit:requests"

All is counted in the log, from the run's RunStart on: a message into the run resets nothing, and
side requests count (summaries, and a sub-agent's that are recorded as `SideRequest`). A `run()`
that goes on after a limit or a restart is a new run and counts from zero. What a request uses is
known from its reply: the one that reaches a limit of tokens or money may go beyond it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from .. import messages as m
from ..bills import PriceOf, cost_of, is_request
from ..events import UsageEvent
from ..loop import Loop
from ..messages import AssistantMessage, Message, Record, Request, Result, ToolCall, ToolMessage
from ..transcript import LogReader
from ..waiting import cancel_this_task, outcome, within

T = TypeVar("T")
logger = logging.getLogger("agentloop")

LIMITS = ("requests", "tokens", "cost", "seconds", "tool_calls", "tool_failures")
LAST_WORDS = (
    "A limit of this run is reached: it ends here, and no tool can be called. "
    "Say briefly what you have done, what you found, and what is still missing."
)
SUMMARY_SECONDS = 30.0
NOT_RUN = "Not run: this run has reached its limit ({})."
TOO_MANY = "Not run: only {} calls of one turn run. Ask again in the next if it is still needed."
CUT_SHORT = (
    "Interrupted: the run's time was up, and the outcome of this call is unknown. "
    "It may have had effects: check before you repeat it."
)


class Limits(Loop):
    """Ends a run that has reached a limit before its next request or call; None is no limit.

    max_requests: model requests, side requests included.
    max_tokens: input and output tokens of all requests together.
    max_cost: money, in the currency of `limit_price`.
    max_seconds: since the run began. A request or a call that is under way then is stopped.
    max_tool_calls: calls that run. Those of a turn that are too many are answered with that.
    max_tool_failures: failures of one tool in a row.
    max_calls_per_turn: calls of one turn that run. The others are answered, and the run goes on.
    limit_price: what a request cost, by (model, Usage). Where it gives no number, the run ends.
    limit_summary: at the end, ask the model for a summary: one more request, of 30 seconds at most.
    limit_exempt: tools that are not counted, and run after other limits than time: a done tool.
    limit_clock: Unix time in seconds, as in `RunStart.at`.
    """

    max_requests: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    max_tool_calls: int | None = None
    max_tool_failures: int | None = None
    max_calls_per_turn: int | None = None
    limit_price: PriceOf | None = None
    limit_summary: bool = False
    limit_exempt: Collection[str] = ("done",)
    limit_clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (*(f"max_{kind}" for kind in LIMITS), "max_calls_per_turn"):
            most = getattr(self, name)
            kinds = (int, float) if name in ("max_cost", "max_seconds") else (int,)
            if most is not None and not (type(most) in kinds and 0 < most < inf):
                kind = "number" if float in kinds else "whole number"
                raise ValueError(f"{name} is a {kind} above 0, or None for no limit; not {most!r}")
        if isinstance(self.limit_exempt, str):
            raise TypeError(f"limit_exempt= takes a list: [{self.limit_exempt!r}]")
        if not callable(self.limit_price) and (self.max_cost or self.limit_price) is not None:
            raise ValueError("max_cost needs limit_price=, a function of (model, Usage)")

    async def context(self) -> list[Message]:
        # Compaction asks for it after a request of its own, when it is about to send another.
        if self._run is not None and (last := fresh_summary(self.log)) and (kind := self._over()):
            raise self._stop(kind, last.content)
        return await super().context()

    async def call_model(self, request: Request) -> AssistantMessage:
        if (kind := self._over() or self._spent().refused) is None:
            scope = asyncio.timeout(self._seconds_left())
            try:
                async with scope:
                    return await super().call_model(request)
            except TimeoutError:
                if not scope.expired():  # it was the model's own
                    raise
            kind = "seconds"
        said = ""
        if self.limit_summary:
            ask = m.UserMessage(LAST_WORDS, hidden=True)
            side = replace(
                request, messages=[*request.messages, ask], tool_choice="auto", purpose="limit"
            )  # "none" would make Anthropic bill the whole conversation again
            try:
                async with asyncio.timeout(SUMMARY_SECONDS):
                    reply = await super().call_model(side)
            except Exception as error:
                logger.warning("there is no last summary: %r", error)
            else:
                said = reply.text
                self.record(m.SideRequest(reply.usage, extra={"limit": kind}, model=reply.model))
                if reply.usage is not None:
                    self.emit(UsageEvent(reply.usage, reply.model))
        raise self._stop(kind, said)

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        most = self.max_tool_calls
        left = None if most is None else max(0, most - self._spent().tool_calls)
        counted = [call for call in calls if call.name not in self.limit_exempt]
        answers = too_many(counted, left, self.max_calls_per_turn)
        for message in answers:
            self.record(message)
        skipped = {message.tool_call_id for message in answers}
        run = [call for call in calls if call.id not in skipped]
        result = await super().call_tools(run) if run else None
        # A model that calls its task done did not know that some of its calls would not run.
        return None if skipped or self._spent().refused else result

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        kind = self._over("requests", "tool_calls")
        if kind == "seconds" or (kind and call.name not in self.limit_exempt):
            return not_run(call, kind)
        ended: list[ToolMessage | BaseException] = []
        work = keep(super().call_tool(call), ended)
        try:
            await within(self._seconds_left(), work, grace=self.cancel_grace)
        except TimeoutError:
            if not ended:
                started = any(isinstance(r, m.ToolStart) and r.call_id == call.id for r in self.log)
                return not_run(call, "seconds", CUT_SHORT if started else NOT_RUN)
        except asyncio.CancelledError:
            if not ended:
                raise
            cancel_this_task()  # its result first, then the cancel
        if isinstance(ended[0], BaseException):
            raise ended[0]
        return ended[0]

    def _spent(self) -> Spent:
        price: Any = None if self.max_cost is None else self.limit_price
        key = None if price is None else price.__call__  # can be hashed, even if the price cannot
        return self.reader(Spending, key, frozenset(self.limit_exempt)).spent(self.limit_clock())

    def _seconds_left(self) -> float | None:
        return None if self.max_seconds is None else self.max_seconds - self._spent().seconds

    def _over(self, *but: str) -> str | None:
        limits = {kind: getattr(self, f"max_{kind}") for kind in LIMITS if kind not in but}
        return over(self._spent(), limits) if any(limits.values()) else None

    def _stop(self, kind: str, said: str) -> m.Stop:
        text = report(used := self._spent(), kind, getattr(self, f"max_{kind}"))
        return m.Stop(f"limit:{kind}", f"{text}\n\n{said or used.said}".strip())


@dataclass(slots=True)
class Spent:
    """What a run has used. `cost` is None if the price of a request is not known."""

    requests: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    tool_calls: int = 0
    tool_failures: int = 0  # in a row, of the tool that is `failing`
    failing: str = ""
    refused: str | None = None  # the limit for which a call did not run, or not to its end
    said: str = field(default="", compare=False)  # by the model, last


class Spending(LogReader):
    """What the newest run of a log has used, calls of exempt tools aside."""

    def __init__(self, price: PriceOf | None = None, exempt: Collection[str] = ()) -> None:
        super().__init__()
        self._price, self._exempt = price, exempt
        self._begin(None)

    def _begin(self, began: float | None) -> None:
        self._began, self._used = began, Spent()
        self._calls: dict[str, tuple[int, str]] = {}  # by id: its place, and the tool
        self._streaks = defaultdict[str, list[int]](lambda: [-1])

    def spent(self, now: float | None) -> Spent:
        failing, streak = max(self._streaks.items(), key=lambda s: len(s[1]), default=("", [-1]))
        seconds = 0.0 if self._began is None or now is None else now - self._began
        return replace(self._used, seconds=seconds, tool_failures=len(streak) - 1, failing=failing)

    def take(self, log: Sequence[Record], at: int) -> None:
        record = log[at]
        if isinstance(record, m.RunStart):
            self._begin(record.at)
        if self._began is None:
            return
        used, calls = self._used, self._calls
        if is_request(record):
            used.requests += 1
            used.tokens += record.usage.total_tokens if record.usage else 0
            if self._price is not None and used.cost is not None:
                cost = cost_of(record, self._price)
                used.cost = None if cost is None else used.cost + cost
        if isinstance(record, AssistantMessage):
            used.said = record.text if record.text.strip() else used.said
            for call in record.tool_calls:
                calls.setdefault(call.id, (len(calls), call.name))
        elif isinstance(record, m.ToolStart):
            _, name = calls.setdefault(record.call_id, (len(calls), ""))
            used.tool_calls += name not in self._exempt
        elif isinstance(record, m.Decision) and not record.allowed:
            calls[record.call_id] = (-1, calls.get(record.call_id, (0, ""))[1])  # is no failure
        elif isinstance(record, ToolMessage) and (kind := (record.extra or {}).get("limit")):
            used.refused = used.refused or (kind if kind in LIMITS else None)
        elif isinstance(record, ToolMessage):
            place, _ = calls.get(record.tool_call_id, (-1, ""))
            streak = self._streaks[record.tool_name]  # its last success, the failures since
            if place > streak[0] and record.is_error:
                insort(streak, place)  # in the order of the calls, whichever was faster
            elif place > streak[0]:
                streak[: bisect(streak, place)] = [place]


def spent(log: Sequence[Record], *settings: Any, now: float | None = None) -> Spent:
    """What the newest run of a log has used until `now`, with the settings of `Spending`."""
    spending = Spending(*settings)
    spending.catch_up(log)
    return spending.spent(now)


def over(used: Spent, limits: Mapping[str, float | None]) -> str | None:
    """The limit that is reached. Tool calls may use up theirs: only one too many is refused."""
    for kind, most in limits.items():
        value: float | None = getattr(used, kind)
        if most is not None and kind != "tool_calls" and (value is None or value >= most):
            return kind
    return None


def too_many(
    calls: Sequence[ToolCall], left: int | None, per_turn: int | None
) -> list[ToolMessage]:
    """The answers to those calls of a turn that are not to run: the last ones."""
    if left is not None and (per_turn is None or left <= per_turn):
        return [not_run(call, "tool_calls") for call in calls[left:]]
    text = TOO_MANY.format(per_turn)
    return [not_run(call, "calls_per_turn", text) for call in calls[per_turn:] if per_turn]


def not_run(call: ToolCall, kind: str, text: str = NOT_RUN) -> ToolMessage:
    return ToolMessage(call.id, call.name, text.format(kind), is_error=True, extra={"limit": kind})


def fresh_summary(log: Sequence[Record]) -> m.Summary | None:
    """The summary of the conversation, if nothing was asked or answered since."""
    kinds = (m.RunStart, AssistantMessage, ToolMessage, m.Summary)
    last = next((record for record in reversed(log) if isinstance(record, kinds)), None)
    return last if isinstance(last, m.Summary) else None


def report(used: Spent, kind: str, most: float) -> str:
    """Why a run ended, and what it had used."""
    more = {"cost": "the cost is not known" if used.cost is None else f"{used.cost:.6g}"}
    more["tool_failures"] = used.failing
    why = f"max_{kind}={most:g}" + f" ({more.get(kind)})" * (kind in more)
    return (
        f"Stopped at {why}. Until then: {used.requests} requests, {used.tokens:,} tokens, "
        f"{used.tool_calls} tool calls, {used.seconds:.1f} seconds."
    )


async def keep(work: Awaitable[T], ended: list[T | BaseException]) -> None:
    """Put what `work` returns or raises into a list, where nothing that comes later loses it."""
    ended.append(await outcome(work))
