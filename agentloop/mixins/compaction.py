"""Summarizes the conversation when it nears the context window, and goes on from the summary.

Copy with: the core, turns.py.

The summary request is the very request that was due plus one user message, so that it reads the
provider's cache. The system prompt, the first task, the user's own messages since the newest
prompt, the newest turns and what the model has not seen yet stay word for word. A summary that
comes to nothing changes nothing; what still does not fit then loses its oldest turns. All of it
stays in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from ..errors import ContextWindowExceeded
from ..events import CompactionEvent, UsageEvent
from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Message,
    Record,
    Request,
    RunStart,
    SideRequest,
    Stop,
    Summary,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from ..results import as_content
from ..tokens import context_window, estimate
from ..tools import in_thread
from ..turns import beginning, first_unseen, gain, new_prompt, place_to_cut, turn_starts

if TYPE_CHECKING:
    from ..loop import ChatModel

logger = logging.getLogger("agentloop")

SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can "
    "go on without this conversation: the task and every instruction of the user, word for word "
    "where it matters; what was done and found, with names, paths, numbers and identifiers; what "
    "failed; what is left to do next."
)
LEFT_OUT = "(What was said before this no longer fits and was left out.)"
NOTHING_LEFT = "The conversation is too long for the model, and nothing in it could be left out."
UNKNOWN_WINDOW = 128_000  # tokens
SMALLEST_WINDOW = 4_096  # below this, nobody has to find out how large a model's is
MIN_GAIN = 0.1  # of the context window: for less, a summary is not worth its request
ROOM = 0.5  # of the context window is what turns are left out down to, so that it is not often
ATTEMPTS = 2  # at a summary, in a run
FAILED = {"compaction": "failed"}
SHORT_RESULT = 2_000  # characters of each tool result, when the conversation itself is too long


@dataclass(frozen=True, kw_only=True)
class CompactionConfig:
    """When and how to compact: at `threshold_ratio` of `context_window` tokens.

    context_window: None is what the package genai-prices says of the model, if it is installed,
        and else 128,000.
    summary_prompt: asks for the summary.
    keep_turns: how many of the newest turns stay as they are.
    model: writes the summary instead of the agent's own model. It may be a cheaper one; but it
        cannot read the cache of the other, and is billed for the whole conversation.
    timeout: seconds that a summary may take.
    """

    threshold_ratio: float = 0.80
    context_window: int | None = None
    summary_prompt: str = field(default=SUMMARY_PROMPT, repr=False)
    keep_turns: int = 2
    model: ChatModel | None = field(default=None, repr=False)
    timeout: float = 120.0
    enabled: bool = True

    def __post_init__(self) -> None:
        window_is_wrong = self.context_window is not None and not self.context_window >= 1
        if not 0 < self.threshold_ratio <= 1 or window_is_wrong:
            raise ValueError(
                f"threshold_ratio is a share from 0 to 1 of a context_window of tokens, not {self}"
            )
        if type(self.keep_turns) is not int or self.keep_turns < 0 or not self.timeout > 0:
            raise ValueError("keep_turns is a whole number from 0 on, and timeout above 0 seconds")
        if not self.summary_prompt.strip():
            raise ValueError("summary_prompt is empty: say what the summary has to hold")
        if not (self.model is None or hasattr(self.model, "ainvoke")):
            raise TypeError(f"model= takes a model, such as ChatOpenAI(...), not {self.model!r}")


class Compaction(Loop):
    """Summarizes before a request that would be too long, and after one that was.

    compaction: when and how; None turns it off.
    """

    compaction: CompactionConfig | None = CompactionConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.compaction) not in (CompactionConfig, type(None)):
            raise TypeError(
                f"compaction= takes CompactionConfig(...) or None, not {self.compaction!r}"
            )

    async def call_model(self, request: Request) -> AssistantMessage:
        config = self.compaction
        if config is None or not config.enabled or request.purpose != "step":
            return await super().call_model(request)
        size = self.meter(request.model).tokens(request)
        if size >= config.threshold_ratio * (config.context_window or SMALLEST_WINDOW):
            request = await self._make_room(request, size, config)
        try:
            return await super().call_model(request)
        except ContextWindowExceeded as error:
            # Results that the model has not seen may be what is too long: they go as well.
            shorter = replace(request, messages=shorten(request.messages))
            retry = await self._summarize(shorter, new_prompt(self.log), size, config)
            if (retry := retry or await self._leave_out(request, size, size // 2)) is None:
                raise Stop("context_overflow", f"{NOTHING_LEFT} {error}") from error
        return await super().call_model(retry)

    async def compact(self) -> bool:
        """Summarize now what is older than the newest turns, however little; whether it was done.

        For between two runs. Listeners get a CompactionEvent. AgentBusy: a run is going on.
        """
        self._refuse_if_busy()
        config = self.compaction or CompactionConfig()
        request = Request(await self.context(), self._offer())
        keep, size = place_to_cut(self.log, config.keep_turns, 1), self.meter().tokens(request)
        return await self._summarize(request, keep, size, config) is not None

    async def _make_room(self, request: Request, size: int, config: CompactionConfig) -> Request:
        """The request to send instead of one of `size` tokens, if that is too long.

        An estimate refuses nothing: what is still too long is sent, and the provider says so.
        """
        known = config.context_window or await self._window_of(request.model or self.llm)
        window = known or UNKNOWN_WINDOW
        if size < (limit := config.threshold_ratio * window):
            return request
        if known is None:
            warn_of_unknown_window(name_of_model(request.model or self.llm))
        keep = place_to_cut(self.log, config.keep_turns, round(MIN_GAIN * window))
        if summarized := await self._summarize(request, keep, size, config):
            request, size = summarized, self.meter(request.model).tokens(summarized)
        if size < (limit if summarized else window):
            return request
        return await self._leave_out(request, size, round(ROOM * window)) or request

    async def _summarize(
        self, request: Request, keep: int, size: int, config: CompactionConfig
    ) -> Request | None:
        """The request that goes on from a summary of the log up to record `keep`.

        None if there is nothing to summarize, or if it came to nothing.
        """
        if keep == 0 or failures(self.log) >= ATTEMPTS:
            return None
        ask = UserMessage(config.summary_prompt, hidden=True)
        rides_the_cache = config.model is None and request.tool_choice == "auto"
        choice, model = "auto" if rides_the_cache else "none", config.model or request.model
        side = Request([*request.messages, ask], request.tools, choice, "compaction", model)
        try:
            async with asyncio.timeout(config.timeout):
                reply = await super().call_model(side)
        except Stop:
            raise
        except Exception as error:
            logger.warning("the conversation could not be summarized: %s", error)
            self.record(SideRequest(extra=FAILED))
            return None
        if reply.usage is not None:
            self.emit(UsageEvent(reply.usage, reply.model))
        replaced = gain(self.log, keep)
        is_whole = reply.text.strip() and reply.stop_reason in (None, "end", "tool_calls")
        if not is_whole or estimate(reply.text) >= replaced:
            logger.warning("the summary was empty, cut off or too long: nothing is replaced by it")
            self.record(SideRequest(reply.usage, extra=FAILED, model=reply.model))
            return None
        self.record(Summary(reply.text, keep, reply.usage, model=reply.model))
        return await self._go_on(request, size, reply.text)

    async def _leave_out(self, request: Request, size: int, target: int) -> Request | None:
        """The request without the oldest turns, down to `target` tokens; None if there are none."""
        begin, end = beginning(self.log), first_unseen(self.log)
        cuts = [at for at in (*turn_starts(self.log, begin, end), end) if at > begin]
        if not cuts:
            return None
        fits = (at for at in cuts if size - gain(self.log, at) <= target)
        summaries = [record.content for record in self.log if isinstance(record, Summary)]
        content = summaries[-1] if summaries else LEFT_OUT
        self.record(Summary(content, next(fits, cuts[-1])))
        return await self._go_on(request, size, content)

    async def _go_on(self, before: Request, size: int, summary: str) -> Request:
        request = replace(before, messages=await self.context())
        still_there = {id(message) for message in request.messages}
        dropped = [
            message
            for message in before.messages
            if id(message) not in still_there and not isinstance(message, SystemMessage)
        ]
        tokens = self.meter(request.model).tokens(request)
        self.emit(CompactionEvent(summary, size, tokens, dropped))
        return request

    async def _window_of(self, model: ChatModel) -> int | None:
        name = name_of_model(model)
        if ("window", name) not in self._cache:  # in a thread: that package takes long to import
            self._cache["window", name] = await in_thread(context_window, name)
        window: int | None = self._cache["window", name]
        return window


def name_of_model(model: ChatModel) -> str:
    return str(getattr(model, "model", None) or "")  # one's own may have none


@cache
def warn_of_unknown_window(model: str) -> None:
    logger.warning(
        "the context window of %r is not known and taken as %s tokens: set "
        "compaction=CompactionConfig(context_window=...), or install genai-prices",
        model,
        f"{UNKNOWN_WINDOW:,}",
    )


def failures(log: Sequence[Record]) -> int:
    """How many summaries of this run have failed since the last one that did not."""
    count = 0
    for record in reversed(log):
        if isinstance(record, Summary | RunStart):
            break
        count += isinstance(record, SideRequest) and "compaction" in (record.extra or {})
    return count


def shorten(messages: Sequence[Message]) -> list[Message]:
    """The messages with long tool results cut: for a conversation that no request can hold."""
    return [
        replace(message, content=as_content(message.text, SHORT_RESULT))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]
