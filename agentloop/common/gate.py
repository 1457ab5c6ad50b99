"""Judges all calls of a turn before any of them runs: what Hooks and Approval have in common.

Copy with: the core.

    class NoPushes(Gate):
        async def judge(self, judgment: Judgment) -> Judgment:
            judgment = await super().judge(judgment)
            if "push" in judgment.call.arguments:
                return judgment.or_stricter(Verdict.DENY, "Nothing is pushed on Fridays.")
            return judgment

A gate overrides `judge` and calls `super()`, so gates work in any order: the strictest verdict
counts, and of two equally strict ones the first. A gate that changes calls does so before it calls
`super()`. One that judges them does so after it, and then sees the call that will run. One that
raises denies the call.
"""

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
from ..transcript import CallState, denied
from ..waiting import logger, was_cancelled

CHANGED = "It was changed after it had been judged."
FAILED = "It could not be judged."


class Verdict(IntEnum):
    """What a gate says of a call. A stricter verdict is greater."""

    NONE = 0  # nothing: others decide, and if nobody does the call runs
    ALLOW = 1
    ASK = 2  # somebody has to say yes
    INVALID = 3  # the call cannot run, and the reason is its result
    BROKEN = 4  # the gate has failed, which denies
    DENY = 5


@frozen
class Judgment:
    """What gates have said of a call so far, and the call as it will run.

    `waits`: somebody was asked, and has not answered yet.
    """

    call: ToolCall
    verdict: Verdict = Verdict.NONE
    reason: str = ""
    waits: bool = False

    def or_stricter(self, verdict: Verdict, reason: str) -> Self:
        """Return this judgment with another verdict, if that is stricter."""
        if verdict <= self.verdict:
            return self
        return replace(self, verdict=verdict, reason=reason, waits=False)

    def with_arguments(self, arguments: Mapping[str, object]) -> Self:
        """Return this judgment of the same call with other arguments."""
        text = to_json(arguments).decode()
        return replace(self, call=replace(self.call, arguments=text))

    @property
    def denies(self) -> bool:
        """Return True if the call does not run because somebody said no, or nobody yes."""
        return self.verdict in (Verdict.ASK, Verdict.BROKEN, Verdict.DENY)


class Gate(Loop):
    """Lets a call of a turn run if its judgment allows that, or says nothing."""

    _judgments: Mapping[str, Judgment] = {}  # of this turn's calls, by call id

    async def judge(self, judgment: Judgment) -> Judgment:
        """Return what this gate, and those at its right, say of a call."""
        return judgment

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        judgments = dict[str, Judgment]()
        for call in calls:
            judgment = Judgment(call)
            with suppress(ToolError):  # some servers send the arguments as a JSON string, '"{}"'
                judgment = judgment.with_arguments(parse_arguments(call.arguments))
            try:
                judgment = await self.judge(judgment)
            except (Exception, CancelledError) as error:
                if isinstance(error, Stop) or was_cancelled(error):
                    raise
                logger.exception("a gate failed, which denies the call")
                judgment = judgment.or_stricter(Verdict.BROKEN, FAILED)
            judgments[call.id] = judgment
        self._judgments = judgments
        judged = judgments.values()
        if any(judgment.waits for judgment in judged):
            raise Stop("needs_approval")
        return await super().call_tools([judgment.call for judgment in judged])

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        state = self.conversation.states.get(call.id, CallState(call))  # a mixin may add calls
        judgment = self._judgments.get(call.id)
        if judgment is None or judgment.call != call:
            return denied(state, CHANGED)
        if judgment.denies:
            return denied(state, judgment.reason)
        if judgment.verdict == Verdict.INVALID:
            return call.answer(judgment.reason, is_error=True)
        return await super().call_tool(call)
