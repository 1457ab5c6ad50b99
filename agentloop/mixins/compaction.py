"""Summarizes the conversation when it nears the context window, and goes on from the summary.

Copy with: the core, common/tokens.py.

The summary request is the newest request that was answered plus one user message, so that it reads
the provider's cache. The system prompt, the first task, the user's words since the newest prompt,
the newest turns and what the model has not seen yet stay word for word. A summary that fails, or is
longer than what it replaces, changes nothing; if the provider then refuses the request, its oldest
turns are left out. The log keeps all.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from ..common.tokens import context_window, message_tokens, tool_tokens
from ..content import clip
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
from ..settings import Settings
from ..transcript import Fold, Records, is_complete, is_own
from ..waiting import logger

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
NAMES_EACH = 60  # max names from one message
NAMES_SHARE = 0.5  # max characters of the whole list, for each token of the budget
UNKNOWN_WINDOW = 128_000  # tokens
SHORT = 12_000  # tokens that fit any window: up to this, the window's size is not looked up
COUNT_AGAIN = 1.1  # growth of the log's view after which each message is counted again
AFTER_SUMMARY = 0.9  # target size after a summary, as a share of the threshold
MOST_KEPT = 8_000  # tokens of the turns that `keep_turns` keeps: they are billed as new ones
AFTER_CUT = 0.25  # target size after turns are left out, as a share of the size that was too much
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


class Compaction(Loop):
    """Summarizes before a request that would be too long, and after one that was.

    compaction: when and how; None turns it off, and the budget too.
    context_budget: in tokens. A longer request loses its oldest turns without a summary; the names
        and numbers in them stay as a list, and the tool `recall` finds the rest: an `Agent` with
        tools then offers it. Leaving turns out costs no request, and a long run costs about half of
        what it costs without a budget.

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

    _counted = 0  # tokens in the newest request, as counted or estimated here
    _logged = 0  # tokens in the log's view at the last count
    _beside = 0  # tokens of tools and system prompt at that count, less what is hidden
    _rate = 1.0  # tokens that the provider last reported, for each that was counted here

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
            retry = await self._summarize(shorter, found=[len(self.log)])
            retry = retry or await self._leave_out(request, self._size(request), worth=0)
            if retry is None:
                raise Stop("context_overflow", f"Nothing more can be left out. {error}") from error
            reply = await super().call_model(retry)
        if reply.usage and reply.usage.input_tokens:
            self._rate = min(max(reply.usage.input_tokens / self._counted, 0.5), 2.0)
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
        if self.context_budget:
            shorter = await self._leave_out(request, limit)
        else:
            shorter = await self._summarize(request, size - AFTER_SUMMARY * limit)
        return shorter or request

    def _threshold(self, config: CompactionConfig, size: int) -> float:
        """Return the size at which a summary is due. That of a short request is not looked up."""
        window = config.context_window
        if window is None:
            window = window_of(self.llm.model) if size > SHORT else UNKNOWN_WINDOW
        return config.threshold_ratio * window

    def _size(self, request: Request, *, recount: bool = True) -> int:
        """Count the input tokens of a request, at the rate that the provider last reported.

        Without `recount`, estimate them from the last count and from what the log has since, until
        the log's view has grown by a tenth.
        """
        logged = self.fold(Cuts).tokens
        if recount or logged >= COUNT_AGAIN * self._logged:
            self._logged = logged
            self._beside = tool_tokens(request.tools) + message_tokens(request.messages) - logged
        self._counted = self._beside + logged
        return round(self._rate * self._counted)

    async def _summarize(
        self, request: Request, enough: float = 1, found: Sequence[int] = ()
    ) -> Request | None:
        """Ask for a summary, record it, and return the shorter request.

        enough: how many tokens the summary has to free.
        found: the places where the log may be cut; without it, those that `keep_turns` leaves.

        Return None if there is nothing to summarize, or if the summary failed.
        """
        config = self.compaction or CompactionConfig()
        cuts = self.fold(Cuts)
        places = found or cuts.places[-1 - config.keep_turns :]
        if cuts.failures >= MAX_FAILURES:
            return None
        keep = cuts.best(places, max(enough, cuts.gain(places[-1]) - MOST_KEPT))
        if not keep:
            return None
        # The newest turn stays, so the request ends where the newest answered one did.
        told = takewhile(lambda each: found or each is not cuts.reply, request.messages)
        messages = [*told, UserMessage(config.summary_prompt, "note")]
        side = Request(messages, request.tools, purpose="compaction", model=config.model)
        try:
            reply = await super().call_model(side)
        except Exception as error:  # a Stop, too: the request itself will raise it again
            reply = AssistantMessage(stop_reason=str(error))
        if reply.text.strip() and is_complete(reply) and message_tokens(reply) < cuts.gain(keep):
            return await self._go_on(request, Summary(reply.text, keep, reply.usage, reply.model))
        logger.warning(
            "no summary, or one that is too long; the reply ended: %s", reply.stop_reason
        )
        self.add(SideRequest(reply.usage, reply.model, "compaction"))
        return None

    async def _leave_out(self, request: Request, size: float, worth: float = 0.5) -> Request | None:
        """Leave the oldest turns out, down to a quarter of `size`; return the shorter request.

        If that cannot be reached, leave out all turns that can go. Return None if they have no more
        than the share `worth` of the tokens to free.
        """
        enough = self._size(request) - AFTER_CUT * size
        cuts = self.fold(Cuts)
        keep = cuts.best(cuts.places, enough, worth)
        if not keep:
            return None
        text, _, older_names = cuts.last.content.partition(NAMES)
        left_out = [  # since the last cut, without user messages that a gate hides from the model
            record
            for record in self.log[cuts.last.kept_from : keep]
            if not isinstance(record, UserMessage) or record in request.messages
        ]
        names = names_in(left_out, older_names, round(NAMES_SHARE * size))
        return await self._go_on(request, Summary(f"{text}{NAMES}{names}", keep))

    async def _go_on(self, before: Request, summary: Summary) -> Request:
        """Record the summary, and return the request that it makes shorter."""
        self.add(summary)
        after = replace(before, messages=await self.context())
        self.emit(CompactionEvent(summary.content, self._size(before), self._size(after)))
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


class Cuts(Fold):
    """Where a log can be cut, and how many tokens that frees.

    tokens: those of the view, without a summary.
    places: where turns begin. A turn begins behind the last reply and its results.
        The end of the newest turn is no place, as the model has not seen its results yet.
    reply: the newest one.
    last: the newest summary; without one, a note that what is cut was left out.
    failures: how many summaries have failed since the newest prompt.
    """

    tokens = 0
    failures = 0
    reply = AssistantMessage()
    last = Summary(LEFT_OUT, 0)
    _turn = 0  # where the newest turn begins

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self.places = [0]  # a cut there frees nothing
        self._sizes = list[int]()  # of each record, in tokens
        self._stays = list[int]()  # where the user's own messages are that every summary keeps

    def take(self, at: int, record: Record | Message) -> None:
        size = message_tokens(record) if isinstance(record, Message) else 0
        self._sizes.append(size)
        self.tokens += size
        if isinstance(record, AssistantMessage):
            self.reply = record
            self.places.append(self._turn)
        if isinstance(record, AssistantMessage | ToolMessage):
            self._turn = at + 1
        elif is_own(record):
            if record.origin == "user":  # a prompt: what was said since an older one goes
                self._stays = self._stays[:1]
                self.failures = 0
            self._stays.append(at)
        elif isinstance(record, Summary):
            self.tokens = self._tokens_after(record.kept_from)
            self.last = record
        elif isinstance(record, SideRequest) and record.purpose == "compaction":
            self.failures += 1

    def best(self, places: Sequence[int], enough: float, worth: float = 0.5) -> int:
        """Return the first of some places where cutting frees `enough` tokens, else the last.

        Return 0 if that frees no more than the share `worth` of `enough`: so little is not worth a
        request.
        """
        first = bisect_left(places[:-1], enough, key=self.gain)  # the last if none frees enough
        place = places[first]
        return place if self.gain(place) > worth * enough else 0

    def gain(self, place: int) -> int:
        """Return how many tokens a cut at a place frees."""
        return self.tokens - self._tokens_after(place)

    def _tokens_after(self, place: int) -> int:
        """Count the tokens of the view if the log were cut at a place: see `summarized`."""
        before = sum(self._sizes[at] for at in self._stays if at < place)
        return before + sum(self._sizes[place:])


def shorten_results(messages: Sequence[Message]) -> list[Message]:
    """Cut the tool results among some messages to `SHORT_RESULT` characters of text each."""
    return [
        replace(message, content=clip(message.text, SHORT_RESULT))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]


def names_in(records: Sequence[Record], older: str, most: int) -> str:
    """List the names and numbers in the messages among some records, the newest first, each once.

    The names of an older list come behind them. The list has at most `most` characters.
    """
    found: list[str] = []
    for record in records:
        if not isinstance(record, Message):
            continue
        text = record.text
        if isinstance(record, AssistantMessage):
            arguments = [call.arguments for call in record.tool_calls]
            text = "\n".join([*arguments, text])
        found += NAME.findall(text)[:NAMES_EACH]
    names = " | ".join(dict.fromkeys([*reversed(found), *older.split(" | "), ""]))
    return names[:most].rpartition(" | ")[0]  # no name is cut in two
