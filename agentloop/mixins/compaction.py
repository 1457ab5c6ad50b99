"""Before a request gets too long, a summary replaces the older part of the conversation.

Copy with: the core, common/model_info.py, common/request_size.py, common/summary.py,
common/tokens.py, common/turns.py, and common/windows.py unless you set
`context_window`.

    agent = Agent(llm=llm, compaction=CompactionConfig(threshold_ratio=0.6))

The model writes the summary. Its request repeats the newest request that was answered, and adds one
message, so the provider reads it from its cache. These stay word for word: system messages, the
first task, the user's messages since the newest prompt, results that the model hasn't seen, and as
many of the newest turns as `keep_turns` allows. The log keeps everything.

If a summary fails, or is longer than what it replaces, nothing changes. If the provider refuses a
request as too long, a summary of everything is tried, with each result and note cut to 2,000
characters; if that fails as well, the older turns are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from ..common.model_info import compact_threshold, output_limit
from ..common.request_size import MeasuresRequests
from ..common.summary import Summary
from ..common.tokens import message_tokens
from ..common.turns import freed_tokens, newest_summary, shown_tokens, turn_starts
from ..content import clip, describe_error
from ..errors import ContextWindowExceeded
from ..messages import AssistantMessage, Message, Stop, ToolMessage, UserMessage, frozen
from ..model import ChatModel, Request
from ..settings import Settings
from ..transcript import Conversation, Mark, Record, SideRequest, is_complete
from ..waiting import logger

SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can "
    "continue without this conversation: the task and every instruction of the user, word for word "
    "where it matters; what was done and found, with names, paths, numbers and identifiers; what "
    "failed; what is left to do next."
)
SHORT = 12_000  # tokens that fit into any window, so there's no need to look up its size
MOST_KEPT = 8_000  # tokens of turns that `keep_turns` keeps, which are billed as uncached
LEAST_FREED = 0.1  # share of the threshold that a summary must free to be worth a request
SHORT_RESULT = 2_000  # characters of a result or a note in the summary of a refused request
MAX_FAILURES = 2  # summaries that may fail in a run


@frozen
class SummaryAsked(Mark):
    """`compact` was called during a run: a summary comes before the next request."""


class CompactionConfig(Settings):
    """When and how to compact: at `threshold_ratio` of `context_window` tokens.

    context_window: size in tokens. None looks it up in the package genai-prices (1,048,576 for
        Gemini). It's 128,000 if the package isn't installed or doesn't know the model.
    summary_prompt: the user message that asks for the summary.
    keep_turns: how many turns before the newest one may stay word for word. Fewer stay if they have
        more than 8,000 tokens in total, or more than a quarter of the size at which to compact.
    model: the model that writes the summary, by default the agent's. A cheaper model may cost more,
        because it hasn't cached the conversation and has to read all of it.
    """

    threshold_ratio: Annotated[float, Field(gt=0, le=1)] = 0.80
    context_window: PositiveInt | None = None
    summary_prompt: str = SUMMARY_PROMPT
    keep_turns: NonNegativeInt = 2
    model: ChatModel | None = None


class Compaction(MeasuresRequests):
    """Summarizes when a request would be too long, or was refused as too long.

    compaction: when and how to compact. With None, only `compact()` does.

    Providers can compact the conversation instead. This mixin then waits for `compact()`, because
    it would count what the provider leaves out:

        llm = ChatOpenAI("gpt-5.6", compact_threshold=100_000)
        llm = ChatAnthropic("claude-opus-5", compact_threshold=100_000)

    The log and the requests then stay complete, and no CompactionEvent is emitted. The model no
    longer sees the messages before the provider's summary, not even the first task or the newest
    turns, and `recall` doesn't search them. Only this provider can read its summary: another model
    gets the whole conversation. Anthropic's usage includes the tokens of the summary.

    `ChatAnthropic(clear_tool_uses=100_000)` lets the provider hide old results; the log doesn't say
    so. Calls and replies still grow, so this mixin goes on working.
    """

    compaction: CompactionConfig | None = CompactionConfig()

    async def call_model(self, request: Request) -> AssistantMessage:
        if request.purpose != "turn":
            return await super().call_model(request)
        if self.summary_is_due:
            self.summary_is_due = False
            request = await self._compacted(self.conversation, request) or request
        llm = request.model or self.llm
        if self.compaction is None or compact_threshold(llm):
            return await super().call_model(request)
        size = self.request_tokens(request)
        threshold = threshold_of(self.compaction, llm, size)
        if size >= threshold:
            request = await self._compacted(self.conversation, request, threshold) or request
        return await self._send(request)

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, SummaryAsked):  # a workflow that's replayed skips the tool
            self.summary_is_due = True

    async def _send(self, request: Request) -> AssistantMessage:
        """Send a request, and shorten it as long as the provider refuses it as too long."""
        try:
            return await super().call_model(request)
        except ContextWindowExceeded as error:
            shorter = await self._shortened(request)
            if shorter is None:
                raise Stop("context_overflow", f"Nothing is left to shorten. {error}") from error
            return await self._send(shorter)

    async def compact(self) -> bool:
        """Summarize the messages before the newest turns now, however short they are.

        Returns True if a summary was recorded. During a run, in a tool for example, it returns
        False at once, and the summary comes before the next request. To let the model decide:

            @tool
            async def compact(agent: Annotated[Compaction, Depends(current_agent)]) -> None:
                "Summarize this conversation, before you start something new."
                await agent.compact()
        """
        if self.running:
            self.record(SummaryAsked())
            return False
        history = self.conversation  # another thread may clear it from here on
        tools = self.turn_tools()  # first, because messages may depend on them
        request = Request(await self.context(), tools)
        return await self._compacted(history, request) is not None

    async def _compacted(
        self, history: Conversation, request: Request, threshold: float = 0
    ) -> Request | None:
        """Summarize all but the newest turns. None if that frees too little, or fails."""
        config = self.compaction or CompactionConfig()
        least = LEAST_FREED * threshold / self.token_rate
        most = min(MOST_KEPT, threshold / 4 or MOST_KEPT) / self.token_rate
        cuts = turn_starts(history.log)[-1 - config.keep_turns :]
        for cut in cuts:
            kept = shown_tokens(history, history.log[cut : cuts[-1]])
            if kept <= most and freed_tokens(history, cut) > least:
                messages = before_newest_reply(request)
                return await self._summarized(history, request, messages, cut)
        return None

    async def _shortened(self, request: Request) -> Request | None:
        """What to send after a request was refused as too long; None if nothing can be left out.

        The newest results may be what is too long, so the summary covers them, too.
        """
        messages = [shorten(message) for message in request.messages]
        history = self.conversation
        if shorter := await self._summarized(history, request, messages, len(self.log)):
            return shorter
        cut = turn_starts(self.log)[-1]
        if freed_tokens(self.conversation, cut) <= 0:
            return None
        return await self.apply_summary(Summary(newest_summary(self.log).content, cut), request)

    async def _summarized(
        self, history: Conversation, request: Request, messages: Sequence[Message], cut: int
    ) -> Request | None:
        """Ask for a summary of these messages, and replace the history before `cut` with it.

        Returns the shorter request, or None if the summary failed.
        """
        config = self.compaction or CompactionConfig()
        freed = freed_tokens(history, cut)
        side_requests = [r for r in history.run if isinstance(r, SideRequest)]
        failures = sum(r.purpose == "compaction" for r in side_requests)
        if not freed or failures >= MAX_FAILURES:
            return None
        asking = [*messages, UserMessage(config.summary_prompt, "note")]
        side = Request(asking, request.tools, purpose="compaction", model=config.model)
        # between runs, the mixins before this one haven't had the request yet
        send = super().call_model if self.running else self.call_model
        try:
            reply = await send(side)
        except Exception as error:  # including Stop, which the request itself will raise again
            reply = AssistantMessage(stop_reason=describe_error(error))
        is_shorter = is_complete(reply) and message_tokens(reply) < freed
        if reply.text.strip() and is_shorter and self.conversation is history:  # not cleared
            summary = Summary(reply.text, cut, usage=reply.usage, model=reply.model)
            return await self.apply_summary(summary, request)
        logger.warning("the summary failed or is too long; the reply ended: %s", reply.stop_reason)
        self.add(SideRequest(purpose="compaction", usage=reply.usage, model=reply.model))
        return None


def threshold_of(config: CompactionConfig, llm: ChatModel, size: int) -> float:
    """The size in tokens at which to summarize. A request of `size` tokens may be below any.

    Some providers refuse a request if its input and its largest output exceed the window.
    """
    window = config.context_window
    if window is None:
        if size <= SHORT:
            return math.inf
        from ..common.windows import window_of

        window = window_of(llm.model)
    room = window - output_limit(llm)
    ratio = config.threshold_ratio * window
    return min(ratio, room) if room > 0 else ratio


def before_newest_reply(request: Request) -> Sequence[Message]:
    """The messages of the newest request that was answered."""
    replies = [at for at, m in enumerate(request.messages) if isinstance(m, AssistantMessage)]
    return request.messages[: replies[-1]] if replies else request.messages


def shorten(message: Message) -> Message:
    is_note = isinstance(message, UserMessage) and message.origin == "note"
    if isinstance(message, ToolMessage) or is_note:
        return replace(message, content=clip(message.text, SHORT_RESULT))
    return message
