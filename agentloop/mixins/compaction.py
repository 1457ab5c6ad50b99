"""Summarizes the conversation when it nears the context window, and goes on from the summary.

Copy with: the core, tokens.py.

The summary request is the very request that was due plus one user message, so that it reads the
provider's cache. The system prompt, the first task, the user's words since the newest prompt, the
newest turns and what the model has not seen yet stay word for word. A summary that fails changes
nothing; what still does not fit then loses its oldest turns. All of it stays in the log.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from ..errors import ContextWindowExceeded
from ..events import CompactionEvent
from ..loop import ChatModel, Loop, Request
from ..messages import (
    AssistantMessage,
    Message,
    Record,
    SideRequest,
    Stop,
    Summary,
    ToolMessage,
    UserMessage,
)
from ..results import as_content
from ..settings import Settings
from ..tokens import context_window, estimate, message_tokens, tool_tokens
from ..tools import in_thread
from ..transcript import is_own, newest_prompt, newest_run

logger = logging.getLogger("agentloop")

SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can "
    "go on without this conversation: the task and every instruction of the user, word for word "
    "where it matters; what was done and found, with names, paths, numbers and identifiers; what "
    "failed; what is left to do next."
)
LEFT_OUT = "(What was said before this no longer fits and was left out.)"
NAMES = "\n\nNames and numbers in what was left out, the newest first:\n"
NAME = re.compile(  # a text in quotes, such as a value of JSON, or a word with a digit or _ @ /
    r'(?<=")[^"\n:{}\[\],]{3,40}(?="(?!:))'
    r"|(?<![\w@#./-])(?=(?:[^\W\d_]|[#.-])*+[\d_@/])[\w@#./-]{2,80}+(?![\w@#./-])"
)
NAMES_EACH = 60  # of a message
NAMES_SIZE = 8_000  # characters of them all
NOTHING_LEFT = "The conversation is too long for the model, and nothing in it could be left out."
UNKNOWN_WINDOW = 128_000  # tokens
SMALLEST_WINDOW = 16_384  # below this, nobody has to find out how large a model's is
MIN_GAIN = 0.1  # of the context window: for less, a summary is not worth its request
ROOM = 0.5  # of the context window is what turns are left out down to, so that it is not often
ATTEMPTS = 2  # at a summary, in a run
FAILED = {"compaction": "failed"}
SHORT_RESULT = 2_000  # characters of each tool result, when the conversation itself is too long


class CompactionConfig(Settings):
    """When and how to compact: at `threshold_ratio` of `context_window` tokens.

    context_window: None is what the package genai-prices says of the model, if it is installed,
        and else 128,000.
    summary_prompt: asks for the summary.
    keep_turns: how many of the newest turns stay as they are.
    model: writes the summary instead of the agent's own model. It may be a cheaper one; but it
        cannot read the cache of the other, and is billed for the whole conversation.
    timeout: seconds that a summary may take.
    tiktoken: count with tiktoken's table for the model, if it is there, rather than estimate.
    enabled: False turns it off.
    """

    threshold_ratio: Annotated[float, Field(gt=0, le=1)] = 0.80
    context_window: PositiveInt | None = None
    summary_prompt: Annotated[str, Field(pattern=r"\S")] = SUMMARY_PROMPT
    keep_turns: Annotated[int, Field(ge=0)] = 2
    model: ChatModel | None = None
    timeout: PositiveFloat = 120.0
    tiktoken: bool = False
    enabled: bool = True


class Compaction(Loop):
    """Summarizes before a request that would be too long, and after one that was.

    compaction: when and how; None turns it off.
    context_budget: from so many tokens on, old turns go without a summary: the names and numbers
        in them stay as a list. That costs no request, and about half of what no budget costs.
    """

    compaction: CompactionConfig | None = CompactionConfig()
    context_budget: PositiveInt | None = None

    _counted, _rate = 0, 1.0  # tokens of the newest request, and of reported to counted ones

    async def call_model(self, request: Request) -> AssistantMessage:
        config = self.compaction
        if config is None or not config.enabled or request.purpose != "step":
            return await super().call_model(request)
        request = await self._make_room(request, config)
        try:
            reply = await super().call_model(request)
        except ContextWindowExceeded as error:
            # Results that the model has not seen may be what is too long: they go as well.
            shorter = replace(request, messages=shorten(request.messages))
            retry = await self._summarize(shorter, max(cuts(self.log, True), default=0), config)
            if (retry := retry or await self._leave_out(request, self._size(request) // 2)) is None:
                raise Stop("context_overflow", f"{NOTHING_LEFT} {error}") from error
            reply = await super().call_model(retry)
        if reply.usage and reply.usage.input_tokens:
            self._rate = min(max(reply.usage.input_tokens / self._counted, 0.5), 2.0)
        return reply

    async def compact(self) -> bool:
        """Summarize now what is older than the newest turns, however little; True if it was done.

        For between two runs. Listeners get a CompactionEvent. AgentBusy: a run is going on.
        """
        self.refuse_if_busy()
        config = self.compaction or CompactionConfig()
        request = Request(await self.context(), self._offer())
        return await self._summarize(request, place_to_cut(self.log, config, 1), config) is not None

    async def _make_room(self, request: Request, config: CompactionConfig) -> Request:
        """The request to send instead of one that is too long.

        An estimate refuses nothing: what is still too long is sent, and the provider says so.
        """
        size, budget = self._size(request), self.context_budget
        if budget and size >= budget:
            least = round(MIN_GAIN * budget)
            return await self._leave_out(request, round(ROOM * budget), least) or request
        if size < config.threshold_ratio * (config.context_window or SMALLEST_WINDOW):
            return request
        model = (request.model or self.llm).model
        window = config.context_window or int(await in_thread(window_of, model))
        if size < config.threshold_ratio * window:
            return request
        keep = place_to_cut(self.log, config, MIN_GAIN * window)
        request = await self._summarize(request, keep, config) or request
        if self._size(request) < window:
            return request
        return await self._leave_out(request, round(ROOM * window)) or request

    def _size(self, request: Request) -> int:
        """The input tokens of a request, at the rate that the provider last reported."""
        counts = self.compaction and self.compaction.tiktoken
        model = (request.model or self.llm).model if counts else None
        self._counted = tool_tokens(request.tools, model)
        self._counted += sum(message_tokens(message, model) for message in request.messages)
        return round(self._rate * self._counted)

    async def _summarize(
        self, request: Request, keep: int, config: CompactionConfig
    ) -> Request | None:
        """The request that goes on from a summary of the log up to record `keep`.

        None if there is nothing to summarize, or if it came to nothing.
        """
        failed = [each for each in newest_run(self.log) if getattr(each, "extra", None) == FAILED]
        if not (gain := cuts(self.log, True).get(keep)) or len(failed) >= ATTEMPTS:
            return None
        ask = UserMessage(config.summary_prompt, hidden=True)
        messages = [*request.messages, ask]
        side = Request(messages, request.tools, purpose="compaction", model=config.model)
        reply, problem = AssistantMessage(), Exception("it was empty, cut off or too long")
        try:
            async with asyncio.timeout(config.timeout):
                reply = await super().call_model(side)
        except Stop:
            raise
        except Exception as error:
            problem = error
        is_whole = reply.text.strip() and reply.stop_reason in (None, "end", "tool_calls")
        if is_whole and estimate(reply.text) < gain:
            self.add(Summary(reply.text, keep, reply.usage, reply.model))
            return await self._go_on(request, reply.text)
        logger.warning("the conversation could not be summarized: %s", problem)
        self.add(SideRequest(reply.usage, reply.model, extra=FAILED))
        return None

    async def _leave_out(self, request: Request, target: int, least: int = 1) -> Request | None:
        """The request without the oldest turns, down to `target` tokens.

        None if they have less than `least` tokens.
        """
        places, size = cuts(self.log), self._size(request)
        fits = (at for at in places if size - places[at] <= target)
        keep = next(fits, max(places, default=0))
        if places.get(keep, 0) < least:
            return None
        summaries = [record.content for record in self.log if isinstance(record, Summary)]
        content = [LEFT_OUT, *summaries][-1].partition(NAMES)[0] + NAMES
        content += names_in(self.log[:keep])
        self.record(Summary(content, keep))
        return await self._go_on(request, content)

    async def _go_on(self, before: Request, summary: str) -> Request:
        request = replace(before, messages=await self.context())
        dropped = [message for message in before.messages if message not in request.messages]
        self.emit(CompactionEvent(summary, self._size(before), self._size(request), dropped))
        return request


@cache
def window_of(model: str) -> int:
    """The context window of a model; UNKNOWN_WINDOW with a warning if nobody knows."""
    if window := context_window(model):
        return window
    logger.warning(
        "the context window of %r is not known and taken as %s tokens: set "
        "compaction=CompactionConfig(context_window=...), or install genai-prices",
        model,
        f"{UNKNOWN_WINDOW:,}",
    )
    return UNKNOWN_WINDOW


def beginning(log: Sequence[Record]) -> int:
    """The first record in view: the last summary's `keep`, or what follows the first task."""
    for record in reversed(log):
        if isinstance(record, Summary):
            return record.keep
    return next((at + 1 for at, record in enumerate(log) if isinstance(record, UserMessage)), 0)


def cuts(log: Sequence[Record], unseen: bool = False) -> dict[int, int]:
    """The places up to which a log can be summarized, and the tokens that leave the view then.

    These are where turns begin, and behind the last one. A turn is a reply, with what was said to
    it before and its results. What the model has not seen yet is not cut off, but with `unseen` the
    results of the last turn may be. The user's words since the newest prompt stay in view.
    """
    begin, prompt = beginning(log), newest_prompt(log)
    places, start, gain, has_calls = dict[int, int](), (0, 0), 0, False
    for at, record in enumerate(log):
        if isinstance(record, AssistantMessage):
            places |= [start]
            has_calls = bool(record.tool_calls)
        if at >= begin and isinstance(record, Message) and not (at >= prompt and is_own(record)):
            gain += message_tokens(record)
        if isinstance(record, AssistantMessage | ToolMessage):
            start = at + 1, gain
    if unseen or not has_calls:
        places |= [start]
    return {at: gain for at, gain in places.items() if at > begin}


def place_to_cut(log: Sequence[Record], config: CompactionConfig, min_gain: float) -> int:
    """The record up to which to summarize, for `min_gain` tokens at least: 0 if it is not worth it.

    That keeps `keep_turns` turns and what is unseen, or fewer turns if they are all there is.
    """
    places = [*cuts(log).items()][-1 - config.keep_turns :]
    return next((at for at, gain in places if gain >= min_gain), 0)


def names_in(records: Iterable[Record]) -> str:
    """The names and numbers in the messages among some records, the newest first, each once."""
    found: list[str] = []
    for record in records:
        if isinstance(record, Message):
            calls = record.tool_calls if isinstance(record, AssistantMessage) else ()
            text = "\n".join([*(call.arguments for call in calls), record.text])
            found += NAME.findall(text)[:NAMES_EACH]
    names = " | ".join([*dict.fromkeys(reversed(found)), ""])
    return names[:NAMES_SIZE].rpartition(" | ")[0]  # no name is cut in two


def shorten(messages: Sequence[Message]) -> list[Message]:
    """The messages with long tool results cut: for a conversation that no request can hold."""
    return [
        replace(message, content=as_content(message.text, SHORT_RESULT))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]
