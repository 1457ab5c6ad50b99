"""Gates judge every call of a turn before the first one runs: the base of Hooks and Approval.

Copy with: the core, common/decides.py, common/nested.py, common/records.py, common/review.py,
common/subagents.py.

    class NoPushes(Gate):
        async def judge(self, judgment: Judgment) -> Judgment:
            judgment = await super().judge(judgment)
            if "push" in judgment.call.arguments:
                return judgment.or_stricter(Verdict.DENY, "Nothing is pushed on Fridays.")
            return judgment

Override `judge`, and call `super()`. Gates work in any order: the strictest verdict wins, and of
two that are equally strict, the first. If you change the call, do it before `super()`; judge what
`super()` returns, because that's the call which will run. The call is denied if a gate changes it
after `super()`, allows it but doesn't call `super()`, raises an exception, or doesn't return a
Judgment.

The gates of an agent also judge the calls of its sub-agents, at any depth. `judgment.agent` is the
agent that makes the call: look there for its tools and its log.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from typing import Self

from pydantic_core import to_json

from ..arguments import parse_arguments
from ..errors import ToolError
from ..loop import Loop
from ..messages import Result, Stop, ToolCall, ToolMessage, frozen
from ..waiting import logger, was_cancelled
from .decides import Decides
from .review import Decision, awaits_start, denied

CHANGED = "The call was changed after it had been judged."
FAILED = "An approval check failed."


class Verdict(IntEnum):
    """What a gate says about a call. A stricter verdict is greater."""

    NONE = 0  # no opinion: the call runs unless another gate objects
    ALLOW = 1
    ASK = 2  # the call needs approval
    ANSWERED = 3  # a reviewer answered in place of the tool; the reason is the result
    INVALID = 4  # the call can't run; the reason is its result
    BROKEN = 5  # the gate failed, so the call is denied
    DENY = 6


@frozen
class Judgment:
    """What the gates say about a call so far.

    call: the call, as the gates have changed it.
    agent: the agent that makes the call: the gate's own agent, or a sub-agent below it.
    verdict, reason: the strictest verdict, and its reason.
    waits: whether the call awaits approval.
    final: the call that will run; None until every gate has had the chance to change it.
    below: the agents whose gates judge after this agent's: see `Gate.judging_agents`.
    """

    call: ToolCall
    agent: Loop
    verdict: Verdict = Verdict.NONE
    reason: str = ""
    waits: bool = False
    final: ToolCall | None = None
    below: Sequence[Gate] = ()

    def or_stricter(self, verdict: Verdict, reason: str) -> Self:
        """A copy with this verdict and reason, if the verdict is stricter than the one so far."""
        if verdict <= self.verdict:
            return self
        return replace(self, verdict=verdict, reason=reason, waits=False)

    def with_arguments(self, arguments: Mapping[str, object]) -> Self:
        """A copy in which the call has these arguments."""
        text = to_json(arguments).decode()
        return replace(self, call=replace(self.call, arguments=text))

    @property
    def denies(self) -> bool:
        """Whether the call was denied, or still needs approval."""
        return self.verdict in (Verdict.ASK, Verdict.BROKEN, Verdict.DENY)


class Gate(Decides):
    """Runs the calls of a turn that no gate objects to."""

    _judgments: Mapping[str, Judgment] = {}  # by call id, for the calls of this turn

    async def judge(self, judgment: Judgment) -> Judgment:
        """Judge a call. `super().judge` asks the gates that come after this one."""
        if judgment.below:
            agent, *below = judgment.below
            return await agent.judge(replace(judgment, below=below))
        return replace(judgment, final=judgment.call)

    def judging_agents(self) -> Sequence[Gate]:
        """The agents whose gates judge this agent's calls, in the order in which they change it.

        For a sub-agent, its parent's gates change a call before its own do, and judge it after
        them.
        """
        return [self]

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        judgments = {call.id: await self._judged(call) for call in calls}
        judged = judgments.values()
        if all(call.parent_id or call.id in self._judgments for call in calls):
            judgments = {**self._judgments, **judgments}  # the turn is still running
        self._judgments = judgments
        if any(judgment.waits for judgment in judged):
            raise Stop("needs_approval")
        for judgment in judged:  # a rule may allow a call for which a gate has asked
            state = self.conversation.state_of(judgment.call)
            if judgment.verdict == Verdict.ALLOW and awaits_start(state):
                self.record(Decision(judgment.call.id, True, judgment.reason, by_rule=True))
        return await super().call_tools([judgment.call for judgment in judged])

    async def _judged(self, call: ToolCall) -> Judgment:
        """Let all gates judge a call. If a reviewer edits it meanwhile, judge the edited call."""
        first, *below = self.judging_agents()
        before = self.conversation.state_of(call).call
        judgment = Judgment(call, self, below=below)
        # some servers encode arguments twice, as a JSON string: '"{}"'
        with suppress(ToolError):
            judgment = judgment.with_arguments(parse_arguments(call.arguments))
        try:
            judgment = validated(await first.judge(judgment))
        except (Exception, CancelledError) as error:
            if isinstance(error, Stop) or was_cancelled(error):
                raise
            logger.exception("a gate failed; the call %s is denied", call.id)
            return judgment.or_stricter(Verdict.BROKEN, FAILED)
        edited = self.conversation.states.get(call.id)
        if edited and edited.call != before:
            return await self._judged(edited.call)
        return judgment

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        state = self.conversation.state_of(call)
        judgment = self._judgments.get(call.id)
        if judgment is None or judgment.call != call:
            return denied(state, CHANGED)
        if judgment.denies:
            return denied(state, judgment.reason)
        if judgment.verdict == Verdict.ANSWERED:
            return call.answer(judgment.reason)
        if judgment.verdict == Verdict.INVALID:
            return call.answer(judgment.reason, is_error=True)
        return await super().call_tool(call)


def validated(judgment: object) -> Judgment:
    """Check that all gates have judged the same call, and return their judgment.

    Raises TypeError if a gate returned anything but a Judgment, and ValueError if one changed the
    call after `super()`, or allowed it but didn't call `super()`.
    """
    if not isinstance(judgment, Judgment):
        raise TypeError(f"judge() must return a Judgment, not {judgment!r:.80}")
    if judgment.verdict < Verdict.INVALID and not judgment.denies:
        if judgment.final is None:
            raise ValueError("judge() must call super().judge() unless it denies the call")
        if judgment.final != judgment.call:
            raise ValueError("judge() must change a call before super().judge(), not after")
    return judgment
