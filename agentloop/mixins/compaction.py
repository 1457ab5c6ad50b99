"""Summarizes a conversation that approaches the context window, and continues from the summary.

Copy with: the core, common/hidden_text.py, common/model_info.py, common/summary.py,
common/tokens.py.

    agent = Agent(llm=llm, compaction=CompactionConfig(threshold_ratio=0.6))
    agent = Agent(llm=llm, context_budget=16_000)        # drops old turns, before any summary

The summary request consists of the newest answered request and an additional user message, and
therefore reads the provider's cache. The system prompt, the first task, the user's messages since
the newest prompt, the newest turns and results that the model has not seen remain verbatim. A
failed summary, or a summary longer than the replaced messages, has no effect; if the provider then
rejects the request as too long, the oldest turns are dropped. The log remains complete.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, takewhile
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from ..common.hidden_text import HidesText
from ..common.model_info import cache_rules, compact_threshold, output_limit
from ..common.summary import Summary
from ..common.tokens import context_window, count_tokens, message_tokens, tool_tokens
from ..content import clip, describe_error
from ..errors import ContextWindowExceeded
from ..events import CompactionEvent, OverBudgetEvent
from ..messages import (
    AssistantMessage,
    Message,
    Stop,
    ToolMessage,
    UserMessage,
)
from ..model import ChatModel, Request
from ..settings import Settings
from ..transcript import (
    Fold,
    Record,
    Records,
    SideRequest,
    is_complete,
    is_from_user,
)
from ..waiting import logger

SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can "
    "continue without this conversation: the task and every instruction of the user, word for word "
    "where it matters; what was done and found, with names, paths, numbers and identifiers; what "
    "failed; what is left to do next."
)
LEFT_OUT = "(Earlier messages no longer fit and were removed.)"
TO_RECALL = " (To read removed messages, use {}.)"
NAMES = "\n\nNames and numbers in the removed messages, newest first:\n"
NAME = re.compile(  # a quoted string, such as a JSON value, or a word with a digit or _ @ /
    r'(?<=")[^"\n:{}\[\],]{3,40}(?="(?!:))'
    r"|(?<![\w@#./-])(?=(?:[^\W\d_]|[#.-])*+[\d_@/])[\w@#./-]{2,80}+(?![\w@#./-])"
)
NAMES_EACH = 60  # maximum number of names per message
NAMES_SHARE = 0.2  # maximum size of the complete list, as a share of the budget
UNKNOWN_WINDOW = 128_000
"""The context window of an unknown model in tokens."""
SHORT = 12_000  # tokens that fit into any window, so that its size need not be determined
COUNT_AGAIN = 1.1  # growth of the rendered log after which all messages are counted again
AFTER_SUMMARY = 0.9  # target size after a summary, as a share of the threshold
MOST_KEPT = 8_000  # maximum tokens of turns preserved by `keep_turns`, which are billed as uncached
AFTER_CUT = 0.25  # target size after dropping turns, as a share of the excessive size
AFTER_CUT_ADDED = 0.15  # the same, as a share of the size without tools and system prompt
MIN_SHARE = 0.5  # minimum share of the target that justifies the cost of a cut
MOST_OVER_BUDGET = 1.05  # multiple of the budget above which a request is reported
SHORT_RESULT = 2_000  # maximum characters of a tool result in a summary of a rejected request
MAX_FAILURES = 2  # maximum number of failed summaries between two prompts


class CompactionConfig(Settings):
    """When and how to compact: at `threshold_ratio` of `context_window` tokens.

    context_window: size in tokens. None uses the package genai-prices, and 1,048,576 for Gemini.
        Without the package, or for a model unknown to the package, the size is 128,000.
    summary_prompt: the user message that requests the summary.
    keep_turns: number of turns before the newest turn that remain verbatim, if they are short.
    model: the model that writes the summary, by default the agent's model. A cheaper model may cost
        more, because the complete conversation is then billed without cache.
    """

    threshold_ratio: Annotated[float, Field(gt=0, le=1)] = 0.80
    context_window: PositiveInt | None = None
    summary_prompt: str = SUMMARY_PROMPT
    keep_turns: NonNegativeInt = 2
    model: ChatModel | None = None


class Compaction(HidesText):
    """Summarizes when a request would be too long, or has been rejected as too long.

    compaction: conditions and method of compaction; None disables compaction and the budget.
    context_budget: size in tokens above which the oldest turns are dropped without a summary. A
        list preserves the names and numbers in these turns, and the tool `recall`, which an `Agent`
        with tools then offers, finds the other content. Dropping turns requires no model request.
        16,000 suits most models: long recorded runs cost 0.38 to 0.74 of the cost without pruning.
        Providers that cache only prefixes from 4,096 tokens (Gemini, some Claude models) require
        24,000. A request that exceeds the budget even without old turns is sent, with a warning and
        an OverBudgetEvent.
    recall_tool: a tool that finds dropped text; the note about dropped messages refers to this
        tool.

    Providers can compact the conversation instead, which disables this mixin like
    `compaction=None`, because the mixin would count the content that the provider omits:

        llm = ChatOpenAI("gpt-5.6", compact_threshold=100_000)
        llm = ChatAnthropic("claude-opus-5", compact_threshold=100_000)

    The log and the requests remain complete, the reply with the provider's summary is returned
    unchanged, and Anthropic's usage includes the tokens of the summary. The model no longer sees
    the messages before the summary verbatim, not even the first task or the newest turns, and
    `recall` does not search them. Only this provider can read the summary: other models receive the
    complete conversation. The log contains no Summary, and no CompactionEvent is emitted.
    `ChatAnthropic(clear_tool_uses=...)` hides old results like `Ephemeral`, but without a record in
    the log; because calls and replies still grow, this mixin remains enabled.
    """

    compaction: CompactionConfig | None = CompactionConfig()
    context_budget: PositiveInt | None = None

    # Sizes and limits are in the provider's tokens, counts in estimated tokens; `_rate` converts.
    _counted = 0  # estimated tokens of the newest request
    _logged = 0  # estimated tokens of the rendered log when messages were last counted
    _beside = 0  # tokens of tools and system prompt at that time, minus those of pruned results
    _rate = 1.0  # the provider's tokens per estimated token, from the last reported usage

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context_budget and compact_threshold(self.llm):
            raise ValueError("the model's compact_threshold disables context_budget: remove one")

    async def call_model(self, request: Request) -> AssistantMessage:
        config = self.compaction
        llm = request.model or self.llm
        if config is None or request.purpose != "step" or compact_threshold(llm):
            return await super().call_model(request)
        request = await self._make_room(request, config)
        try:
            reply = await super().call_model(request)
        except ContextWindowExceeded as error:
            # The newest results may be the cause, so the summary includes them.
            shorter = replace(request, messages=shorten_results(request.messages))
            retry = await self._summarize(shorter, cut_at=len(self.log))
            retry = retry or await self._leave_out(request, self._size(request), min_share=0)
            if retry is None:
                raise Stop(
                    "context_overflow", f"The request cannot be shortened further. {error}"
                ) from error
            reply = await super().call_model(retry)
        if reply.usage and reply.usage.input_tokens:
            self._rate = min(max(reply.usage.input_tokens / self._counted, 0.25), 4.0)
        return reply

    async def compact(self) -> bool:
        """Summarize the messages before the newest turns now, regardless of their length.

        Return whether a summary was recorded, which emits a CompactionEvent. Raises AgentBusy
        during a run.
        """
        self.refuse_if_busy()
        request = Request(await self.context(), self.turn_tools())
        return await self._summarize(request) is not None

    async def _make_room(self, request: Request, config: CompactionConfig) -> Request:
        """Return the request, shortened if it is too long.

        The size is an estimate: a request that remains too long is sent, and rejected by the
        provider.
        """
        size = self._size(request, recount=False)
        limit = self.context_budget or self._threshold(config, size)
        if size >= limit:
            size = self._size(request)  # excludes results hidden since the last count
        if size < limit:
            return request
        if not self.context_budget:
            target = (size - AFTER_SUMMARY * limit) / self._rate
            return await self._summarize(request, target) or request
        share = MIN_SHARE
        if size > MOST_OVER_BUDGET * limit:  # a cut that suffices is always justified
            share = min(share, (size - limit) / (size - self._size_after_cut(limit)))
        request = await self._leave_out(request, limit, share) or request
        size = self._size(request)
        if size > MOST_OVER_BUDGET * limit:
            logger.warning(
                "the request has about %s tokens, and dropping old turns does not suffice: raise "
                "context_budget=%s, or shorten tool results with max_result_chars",
                size,
                self.context_budget,
            )
            self.emit(OverBudgetEvent(size, self.context_budget))
        return request

    def _threshold(self, config: CompactionConfig, size: int) -> float:
        """Return the size that requires a summary, without a look-up for short requests.

        Some providers reject a request if the sum of its input and its output limit exceeds the
        window.
        """
        window = config.context_window
        if window is None:
            window = window_of(self.llm.model) if size > SHORT else UNKNOWN_WINDOW
        room = window - output_limit(self.llm)
        ratio = config.threshold_ratio * window
        return min(ratio, room) if room > 0 else ratio

    def _size(self, request: Request, *, recount: bool = True) -> int:
        """Return the input tokens of a request, calibrated by the provider's last reported usage.

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

        target: estimated tokens that the summary must free.
        cut_at: the index at which to cut the log. The default is the start of a turn, according to
            `keep_turns`.

        Return None without messages to summarize, or if the summary failed.
        """
        config = self.compaction or CompactionConfig()
        cuts = self.fold(CutPoints)
        if cuts.failures >= MAX_FAILURES:
            return None
        prefix: Iterable[Message] = request.messages
        cut_points = [cut_at or 0]
        if cut_at is None:
            # The newest turn is preserved, so the prefix ends like the newest answered request.
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
        except Exception as error:  # including Stop, which the request itself will raise again
            reply = AssistantMessage(stop_reason=describe_error(error))
        shorter = message_tokens(reply) < cuts.tokens_freed(cut)
        if reply.text.strip() and is_complete(reply) and shorter:
            summary = Summary(reply.text, cut, usage=reply.usage, model=reply.model)
            return await self._apply(summary, request)
        logger.warning("the summary failed or is too long; the reply ended: %s", reply.stop_reason)
        self.add(SideRequest("compaction", usage=reply.usage, model=reply.model))
        return None

    async def _leave_out(self, request: Request, size: float, min_share: float) -> Request | None:
        """Drop the oldest turns down to `_size_after_cut`; return the shorter request.

        If this size is impossible, drop all turns except the newest. Return None if this frees at
        most the share `min_share` of the required tokens.
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
        dropped = [  # since the last cut, except user messages that a gate withholds from the model
            record
            for record in self.log[cuts.last.kept_from : cut]
            if not isinstance(record, UserMessage) or record in request.messages
        ]
        names = names_in(dropped, older_names, int(NAMES_SHARE * size / self._rate))
        return await self._apply(Summary(f"{text}{NAMES}{names}", cut), request)

    def _size_after_cut(self, size: float) -> float:
        """Return the target size after dropping turns from a request of `size` tokens.

        The remaining request must be long enough for the provider's cache: the smallest cacheable
        prefix and a turn.
        """
        cuts = self.fold(CutPoints)
        fixed = self._rate * self._beside
        turn = self._rate * cuts.tokens_after(cuts.cut_points[-1])
        cacheable = min(cache_rules(self.llm).smallest_prefix + turn, size / 2)
        return max(AFTER_CUT * size, fixed + AFTER_CUT_ADDED * (size - fixed), cacheable)

    async def _apply(self, summary: Summary, request: Request) -> Request:
        """Record a summary, and return the request with the summarized messages replaced."""
        self.add(summary)
        after = replace(request, messages=await self.context())
        self.emit(CompactionEvent(summary.content, self._size(request), self._size(after)))
        return after


@cache
def window_of(model: str) -> int:
    """Return a model's context window, or UNKNOWN_WINDOW with a warning for an unknown model."""
    window = context_window(model)
    if window:
        return window
    logger.warning(
        "unknown context window of %r, assumed to be 128,000 tokens: set "
        "compaction=CompactionConfig(context_window=...), or install genai-prices",
        model,
    )
    return UNKNOWN_WINDOW


class CutPoints(Fold):
    """Possible cut points of a log, and the estimated tokens that a cut frees.

    tokens: estimated tokens of the rendered log, without a summary.
    cut_points: indices where turns begin. A turn begins after the previous reply and its results.
        The end of the newest turn is excluded, because the model has not seen its results.
    reply: the newest reply.
    last: the newest summary; without a summary, a note that previous messages were removed.
    failures: number of failed summaries since the newest prompt.
    """

    tokens = 0
    failures = 0
    reply = AssistantMessage()
    last = Summary(LEFT_OUT, 0)
    _turn = 0  # the index where the newest turn begins

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self.cut_points = [0]  # a cut at 0 frees nothing
        self._sizes = list[int]()  # tokens of every record
        self._verbatim = list[int]()  # indices of user messages that all summaries preserve

    def take(self, at: int, record: Record | Message) -> None:
        size = message_tokens(record) if isinstance(record, Message) else 0
        self._sizes.append(size)
        self.tokens += size
        if isinstance(record, AssistantMessage):
            self.reply = record
            self.cut_points.append(self._turn)
        if isinstance(record, AssistantMessage | ToolMessage):
            self._turn = at + 1
        elif is_from_user(record):
            # a prompt: messages since the previous prompt need not be preserved
            if record.origin == "user":
                self._verbatim = self._verbatim[:1]
                self.failures = 0
            self._verbatim.append(at)
        elif isinstance(record, Summary):
            self.tokens = self.tokens_after(record.kept_from)
            self.last = record
        elif isinstance(record, SideRequest) and record.purpose == "compaction":
            self.failures += 1

    def best(self, cut_points: Sequence[int], target: float, min_share: float = MIN_SHARE) -> int:
        """Return the first cut point that frees `target` tokens, otherwise the last cut point.

        Return 0 if the cut frees at most the share `min_share` of `target`, which does not justify
        invalidating the cached prefix.
        """
        # the last if none frees enough
        first = bisect_left(cut_points[:-1], target, key=self.tokens_freed)
        cut = cut_points[first]
        return cut if self.tokens_freed(cut) > min_share * target else 0

    def tokens_freed(self, cut: int) -> int:
        """Return the number of tokens that a cut at an index frees."""
        return self.tokens - self.tokens_after(cut)

    def tokens_after(self, cut: int) -> int:
        """Return the number of tokens of the log rendered after a cut: see `summarized`."""
        before = sum(self._sizes[at] for at in self._verbatim if at < cut)
        return before + sum(self._sizes[cut:])


def shorten_results(messages: Sequence[Message]) -> list[Message]:
    """Truncate the text of tool results in a list of messages to `SHORT_RESULT` characters."""
    return [
        replace(message, content=clip(message.text, SHORT_RESULT))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]


def names_in(records: Sequence[Record], older: str, most: int) -> str:
    """Return the distinct names and numbers in the messages of some records, newest first.

    The names of an older list follow. The result has at most `most` tokens by the estimate.
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
    distinct = [*filter(None, dict.fromkeys([*reversed(names), *older.split(" | ")]))]
    sizes = accumulate(count_tokens(f" | {name}") for name in distinct)
    return " | ".join(name for name, size in zip(distinct, sizes, strict=True) if size <= most)
