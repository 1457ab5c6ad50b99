"""Summarizes the conversation when it nears the context window, and goes on from the summary.

Copy with: the core, common/hidden_text.py, common/model_info.py, common/tokens.py.

The summary request is the newest request that was answered plus one user message, so that it reads
the provider's cache. The system prompt, the first task, the user's words since the newest prompt,
the newest turns and what the model has not seen yet stay word for word. A summary that fails, or is
longer than what it replaces, changes nothing; if the provider then refuses the request, its oldest
turns are left out. The log keeps all.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from ..common.hidden_text import HidesText
from ..common.model_info import cache_rules, output_limit
from ..common.tokens import context_window, message_tokens, tool_tokens
from ..content import clip, describe_error
from ..errors import ContextWindowExceeded
from ..events import CompactionEvent, OverBudgetEvent
from ..loop import ChatModel, Request
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
from ..settings import Settings
from ..transcript import Fold, Records, is_complete, is_own
from ..waiting import logger

SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can "
    "go on without this conversation: the task and every instruction of the user, word for word "
    "where it matters; what was done and found, with names, paths, numbers and identifiers; what "
    "failed; what is left to do next."
)
LEFT_OUT = "(Earlier messages no longer fit and were removed.)"
TO_RECALL = " (To read removed messages, use {}.)"
NAMES = "\n\nNames and numbers in the removed messages, newest first:\n"
NAME = re.compile(  # a text in quotes, such as a value of JSON, or a word with a digit or _ @ /
    r'(?<=")[^"\n:{}\[\],]{3,40}(?="(?!:))'
    r"|(?<![\w@#./-])(?=(?:[^\W\d_]|[#.-])*+[\d_@/])[\w@#./-]{2,80}+(?![\w@#./-])"
)
NAMES_EACH = 60  # max names from one message
NAMES_SHARE = 0.5  # max characters of the whole list, for each token of the budget
UNKNOWN_WINDOW = 128_000  # tokens
SHORT = 12_000  # tokens that fit any window: up to this, the window's size is not looked up
COUNT_AGAIN = 1.1  # growth of the log's view after which each message is counted again
AFTER_SUMMARY = 0.9  # target size after a summary, as a share of the threshold
MOST_KEPT = 8_000  # tokens of the turns that `keep_turns` keeps: they are billed as new ones
AFTER_CUT = 0.25  # target size after turns are dropped, as a share of the size that was too much
AFTER_CUT_ADDED = 0.15  # the same, for the share of the size beyond tools and system prompt
MIN_SHARE = 0.5  # a cut that frees a smaller share of the target is not worth its cost
MOST_OVER_BUDGET = 1.05  # times the budget; a larger request is reported
SHORT_RESULT = 2_000  # max characters of a tool result in a request that the provider refused
MAX_FAILURES = 2  # failed summaries since a prompt, after which none is tried


class CompactionConfig(Settings):
    """When and how to compact: at `threshold_ratio` of `context_window` tokens.

    context_window: in tokens. None takes what the package genai-prices says of the model. Gemini
        counts as 1,048,576. Where that package is not installed, or does not know the model, it is
        128,000.
    summary_prompt: asks for the summary.
    keep_turns: how many turns before the newest stay as they are, if they have few tokens.
    model: writes the summary instead of the agent's own model. A cheaper model may cost more: it
        cannot read the cache of the other one, and is billed for the whole conversation.
    """

    threshold_ratio: Annotated[float, Field(gt=0, le=1)] = 0.80
    context_window: PositiveInt | None = None
    summary_prompt: str = SUMMARY_PROMPT
    keep_turns: NonNegativeInt = 2
    model: ChatModel | None = None


class Compaction(HidesText):
    """Summarizes before a request that would be too long, and after one that was.

    compaction: when and how; None turns it off, and the budget too.
    context_budget: in tokens. A longer request loses its oldest turns without a summary; the names
        and numbers in them stay as a list, and the tool `recall` finds the rest: an `Agent` with
        tools then offers it. Dropping turns costs no request, and a long run costs about half of
        its cost without a budget. A request whose newest turn alone is larger is sent, with a
        warning and an OverBudgetEvent.
    recall_tool: a tool that finds dropped text, which the note of a cut names.

    A provider can do it instead. Turn this off then (`compaction=None`), as it would count what
    the provider leaves out:

        llm = ChatOpenAI("gpt-5.6", extra={
            "context_management": [{"type": "compaction", "compact_threshold": 100_000}]})
        llm = ChatAnthropic("claude-opus-5", betas=["compact-2026-01-12"], extra={
            "context_management": {"edits": [{"type": "compact_20260112"}]}})

    The log and the requests keep everything, and the reply with the provider's summary goes back
    as it came. Only its provider can read it: another model gets the whole conversation. There is
    no Summary in the log and no CompactionEvent. Anthropic reports the tokens of a summary under
    `iterations`, which `usage` leaves out. Its context editing (an edit `clear_tool_uses_20250919`
    with the beta `context-management-2025-06-27`) hides old results as `Ephemeral` does, without
    a trace here.
    """

    compaction: CompactionConfig | None = CompactionConfig()
    context_budget: PositiveInt | None = None

    # `_rate` converts: sizes and limits are in the provider's tokens, all counts in estimated ones
    _counted = 0  # estimated tokens of the newest request
    _logged = 0  # estimated tokens of the rendered log when messages were last counted
    _beside = 0  # those of tools and system prompt at that time, less the pruned results
    _rate = 1.0  # the provider's tokens per estimated token, from its last report

    async def call_model(self, request: Request) -> AssistantMessage:
        config = self.compaction
        if config is None or request.purpose != "step":
            return await super().call_model(request)
        request = await self._make_room(request, config)
        try:
            reply = await super().call_model(request)
        except ContextWindowExceeded as error:
            # The newest results may be what is too long, so they are summarized as well.
            shorter = replace(request, messages=shorten_results(request.messages))
            retry = await self._summarize(shorter, cut_at=len(self.log))
            retry = retry or await self._leave_out(request, self._size(request), min_share=0)
            if retry is None:
                raise Stop("context_overflow", f"Nothing more can be left out. {error}") from error
            reply = await super().call_model(retry)
        if reply.usage and reply.usage.input_tokens:
            self._rate = min(max(reply.usage.input_tokens / self._counted, 0.25), 4.0)
        return reply

    async def compact(self) -> bool:
        """Summarize now what is older than the newest turns, however little it is.

        Return True if that was done; listeners get a CompactionEvent then. Raises AgentBusy if a
        run is going on.
        """
        self.refuse_if_busy()
        request = Request(await self.context(), self._snapshot_tools())
        return await self._summarize(request) is not None

    async def _make_room(self, request: Request, config: CompactionConfig) -> Request:
        """Return the request, or a shorter one if it is too long.

        The size is an estimate, so it refuses nothing: a request that is still too long is sent,
        and the provider refuses it.
        """
        size = self._size(request, recount=False)
        limit = self.context_budget or self._threshold(config, size)
        if size >= limit:
            size = self._size(request)  # what was hidden since the last count is not in it
        if size < limit:
            return request
        if not self.context_budget:
            target = (size - AFTER_SUMMARY * limit) / self._rate
            return await self._summarize(request, target) or request
        share = MIN_SHARE
        if size > MOST_OVER_BUDGET * limit:  # a cut that makes the request fit is worth its cost
            share = min(share, (size - limit) / (size - self._size_after_cut(limit)))
        request = await self._leave_out(request, limit, share) or request
        size = self._size(request)
        if size > MOST_OVER_BUDGET * limit:
            logger.warning(
                "the request has about %s tokens, and no more turns can be dropped: raise "
                "context_budget=%s, or shorten tool results with max_result_chars",
                size,
                self.context_budget,
            )
            self.emit(OverBudgetEvent(size, self.context_budget))
        return request

    def _threshold(self, config: CompactionConfig, size: int) -> float:
        """Return the size at which a summary is due. A short request needs no look-up.

        Some providers refuse a request if its input and its largest output exceed the window.
        """
        window = config.context_window
        if window is None:
            window = window_of(self.llm.model) if size > SHORT else UNKNOWN_WINDOW
        room = window - output_limit(self.llm)
        ratio = config.threshold_ratio * window
        return min(ratio, room) if room > 0 else ratio

    def _size(self, request: Request, *, recount: bool = True) -> int:
        """Return the input tokens of a request, at the rate of the provider's last report.

        Without `recount`, add the tokens of new records to the last count, until the rendered log
        has grown by a tenth.
        """
        logged = self.fold(CutPoints).tokens
        if recount or logged >= COUNT_AGAIN * self._logged:
            self._logged = logged
            self._beside = tool_tokens(request.tools) + message_tokens(request.messages) - logged
        self._counted = self._beside + logged
        return round(self._rate * self._counted)

    async def _summarize(
        self, request: Request, target: float = 1, cut_at: int | None = None
    ) -> Request | None:
        """Request a summary, record it, and return the shorter request.

        target: how many estimated tokens the summary has to free.
        cut_at: where to cut the log. Default: at the start of a turn, as `keep_turns` says.

        Return None if there is nothing to summarize, or if the summary failed.
        """
        config = self.compaction or CompactionConfig()
        cuts = self.fold(CutPoints)
        if cuts.failures >= MAX_FAILURES:
            return None
        prefix: Iterable[Message] = request.messages
        cut_points = [cut_at or 0]
        if cut_at is None:
            # The newest turn stays, so the request ends where the newest answered one did.
            prefix = takewhile(lambda message: message is not cuts.reply, prefix)
            cut_points = cuts.cut_points[-1 - config.keep_turns :]
        least = cuts.tokens_freed(cut_points[-1]) - MOST_KEPT / self._rate
        cut = cuts.best(cut_points, max(target, least))
        if not cut:
            return None
        messages = [*prefix, UserMessage(config.summary_prompt, "note")]
        side = Request(messages, request.tools, purpose="compaction", model=config.model)
        try:
            reply = await super().call_model(side)
        except Exception as error:  # also a Stop: the request itself will raise it again
            reply = AssistantMessage(stop_reason=describe_error(error))
        shorter = message_tokens(reply) < cuts.tokens_freed(cut)
        if reply.text.strip() and is_complete(reply) and shorter:
            summary = Summary(reply.text, cut, reply.usage, reply.model)
            return await self._apply(summary, request)
        logger.warning("the summary failed or is too long; the reply ended: %s", reply.stop_reason)
        self.add(SideRequest(reply.usage, reply.model, "compaction"))
        return None

    async def _leave_out(self, request: Request, size: float, min_share: float) -> Request | None:
        """Drop the oldest turns, as `_size_after_cut` says; return the shorter request.

        If that cannot be reached, drop all turns that can go. Return None if they have at most the
        share `min_share` of the tokens to free.
        """
        cuts = self.fold(CutPoints)
        target = (self._size(request) - self._size_after_cut(size)) / self._rate
        cut = cuts.best(cuts.cut_points, target, min_share)
        if not cut:
            return None
        text, _, older_names = cuts.last.content.partition(NAMES)
        if recall := self.recall_name(request.tools):
            note = TO_RECALL.format(recall)
            text = text.removesuffix(note) + note
        dropped = [  # since the last cut, without user messages that a gate hides from the model
            record
            for record in self.log[cuts.last.kept_from : cut]
            if not isinstance(record, UserMessage) or record in request.messages
        ]
        names = names_in(dropped, older_names, round(NAMES_SHARE * size / self._rate))
        return await self._apply(Summary(f"{text}{NAMES}{names}", cut), request)

    def _size_after_cut(self, size: float) -> float:
        """Return the size down to which a request of `size` tokens is cut.

        What remains must be long enough for the provider's cache: its smallest prefix and a turn.
        """
        cuts = self.fold(CutPoints)
        fixed = self._rate * self._beside
        turn = self._rate * cuts.tokens_after(cuts.cut_points[-1])
        cacheable = min(cache_rules(self.llm).smallest_prefix + turn, size / 2)
        return max(AFTER_CUT * size, fixed + AFTER_CUT_ADDED * (size - fixed), cacheable)

    async def _apply(self, summary: Summary, request: Request) -> Request:
        """Record a summary, and return the request that it makes shorter."""
        self.add(summary)
        after = replace(request, messages=await self.context())
        self.emit(CompactionEvent(summary.content, self._size(request), self._size(after)))
        return after


@cache
def window_of(model: str) -> int:
    """Return a model's context window, or UNKNOWN_WINDOW with a warning if it is not known."""
    window = context_window(model)
    if window:
        return window
    logger.warning(
        "the context window of %r is not known and taken as 128,000 tokens: set "
        "compaction=CompactionConfig(context_window=...), or install genai-prices",
        model,
    )
    return UNKNOWN_WINDOW


class CutPoints(Fold):
    """Where a log can be cut, and how many tokens that frees. All tokens are estimated ones.

    tokens: those of the rendered log, without a summary.
    cut_points: indices where turns begin. A turn begins after the last reply and its results.
        The end of the newest turn is not among them, as the model has not seen its results yet.
    reply: the newest reply.
    last: the newest summary; without one, a note that earlier messages were removed.
    failures: how many summaries have failed since the newest prompt.
    """

    tokens = 0
    failures = 0
    reply = AssistantMessage()
    last = Summary(LEFT_OUT, 0)
    _turn = 0  # the index where the newest turn begins

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self.cut_points = [0]  # a cut at 0 frees nothing
        self._sizes = list[int]()  # of each record, in tokens
        self._kept = list[int]()  # indices of the user's messages that every summary keeps

    def take(self, at: int, record: Record | Message) -> None:
        size = message_tokens(record) if isinstance(record, Message) else 0
        self._sizes.append(size)
        self.tokens += size
        if isinstance(record, AssistantMessage):
            self.reply = record
            self.cut_points.append(self._turn)
        if isinstance(record, AssistantMessage | ToolMessage):
            self._turn = at + 1
        elif is_own(record):
            if record.origin == "user":  # a prompt: messages since an older one are dropped
                self._kept = self._kept[:1]
                self.failures = 0
            self._kept.append(at)
        elif isinstance(record, Summary):
            self.tokens = self.tokens_after(record.kept_from)
            self.last = record
        elif isinstance(record, SideRequest) and record.purpose == "compaction":
            self.failures += 1

    def best(self, cut_points: Sequence[int], target: float, min_share: float = MIN_SHARE) -> int:
        """Return the first cut point that frees `target` tokens, otherwise the last one.

        Return 0 if the cut frees at most the share `min_share` of `target`: that is not worth
        breaking the cached prefix.
        """
        # the last if none frees enough
        first = bisect_left(cut_points[:-1], target, key=self.tokens_freed)
        cut = cut_points[first]
        return cut if self.tokens_freed(cut) > min_share * target else 0

    def tokens_freed(self, cut: int) -> int:
        """Return how many tokens a cut at an index frees."""
        return self.tokens - self.tokens_after(cut)

    def tokens_after(self, cut: int) -> int:
        """Count the tokens of the log rendered after a cut: see `summarized`."""
        before = sum(self._sizes[at] for at in self._kept if at < cut)
        return before + sum(self._sizes[cut:])


def shorten_results(messages: Sequence[Message]) -> list[Message]:
    """Truncate the tool results among some messages to `SHORT_RESULT` characters of text each."""
    return [
        replace(message, content=clip(message.text, SHORT_RESULT))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]


def names_in(records: Sequence[Record], older: str, most: int) -> str:
    """List the names and numbers in the messages among some records, newest first, each once.

    The names of an older list follow. The list has at most `most` characters.
    """
    names: list[str] = []
    for record in records:
        if not isinstance(record, Message):
            continue
        text = record.text
        if isinstance(record, AssistantMessage):
            arguments = [call.arguments for call in record.tool_calls]
            text = "\n".join([*arguments, text])
        names += NAME.findall(text)[:NAMES_EACH]
    joined = " | ".join(dict.fromkeys([*reversed(names), *older.split(" | "), ""]))
    return joined[:most].rpartition(" | ")[0]  # no name is cut in two
