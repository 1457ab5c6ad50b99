"""How `ContextBudget` drops old turns from a request, and keeps the names they mentioned.

Copy with: the core, common/model_info.py, common/request_size.py, common/summary.py,
common/tokens.py, common/turns.py.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, partial
from itertools import accumulate

from ..events import OverBudgetEvent
from ..messages import AssistantMessage, Message
from ..model import Request
from ..transcript import Record
from ..waiting import logger
from .model_info import CacheRules, cache_rules
from .request_size import MeasuresRequests
from .summary import Summary
from .tokens import count_tokens
from .turns import freed_tokens, newest_summary, shown_tokens, turn_starts

NAMES = "\n\nNames and numbers in the removed messages, newest first:\n"
NAME = re.compile(  # a quoted string, such as a JSON value, or a word with a digit or _ @ /
    r'(?<=")[^"\n:{}\[\],]{3,40}(?="(?!:))'
    r"|(?<![\w@#./-])(?=(?:[^\W\d_]|[#.-])*+[\d_@/])[\w@#./-]{2,80}+(?![\w@#./-])"
)
NAMES_EACH = 60  # names that are kept of one message
NAMES_TOKENS = 2_400  # the longest list of names, because each cut has to write it
NAMES_SHARE = 0.2  # the same, as a share of a small budget
AFTER_CUT = 0.25  # size after a cut, as a share of the budget
AFTER_CUT_ADDED = 0.15  # the same, as a share of what is neither tools nor system prompt
LEAST_DROPPED = 0.5  # share of the target that a cut must free to be worth a changed prefix
MOST_OVER = 1.05  # a request that is longer than this many budgets is reported
TURN_TOKENS = 1_000  # how long a turn is in a run for which a budget should pay


@cache
def warn_unless_it_pays(budget: int, model: str, rules: CacheRules) -> None:
    """Warn once if a cut costs more than it saves until the next one.

    What's left after a cut has to be written to the cache. Then each turn saves what it would have
    cost to read what was dropped.
    """
    dropped = (1 - AFTER_CUT) * budget
    turns = dropped / TURN_TOKENS
    saved = turns * dropped * rules.read_price
    cost = AFTER_CUT * budget * (rules.write_price - rules.read_price)
    if saved < cost:
        logger.warning(
            "context_budget=%s may cost more than it saves, because %s reads its cache at %s times "
            "the price of input: choose a larger budget, or none",
            budget,
            model,
            rules.read_price,
        )


async def drop_turns(agent: MeasuresRequests, request: Request, budget: int) -> Request:
    """Drop the oldest turns of a request, if that's worth a changed prefix."""
    size = agent.request_tokens(request)
    target = size - size_after_cut(agent, budget, size)
    freed_by = partial(freed_tokens, agent.conversation)
    starts = turn_starts(agent.log)
    cut = starts[bisect_left(starts[:-1], target / agent.token_rate, key=freed_by)]
    freed = agent.token_rate * freed_by(cut)
    if freed > LEAST_DROPPED * target or 0 < size - freed <= budget < size / MOST_OVER:
        summary = summary_of(agent, budget, cut)
        request = await agent.apply_summary(summary, request)
    size = agent.request_tokens(request)
    if size > MOST_OVER * budget:
        logger.warning(
            "the request has about %s tokens even after its old turns were dropped: raise "
            "context_budget=%s, or shorten tool results with max_result_chars",
            size,
            budget,
        )
        agent.emit(OverBudgetEvent(size, budget))
    return request


def size_after_cut(agent: MeasuresRequests, budget: int, size: int) -> float:
    """How many tokens a cut leaves of a request.

    That must be enough for the provider's cache: its smallest prefix, and what every cut keeps.
    """
    conversation, rate = agent.conversation, agent.token_rate
    shown = shown_tokens(conversation, conversation.shown)
    kept = shown - freed_tokens(conversation, turn_starts(agent.log)[-1])
    fixed = size - rate * shown
    cacheable = min(cache_rules(agent.llm).smallest_prefix + rate * kept, budget / 2)
    return max(AFTER_CUT * budget, fixed + AFTER_CUT_ADDED * (budget - fixed), cacheable)


def summary_of(agent: MeasuresRequests, budget: int, cut: int) -> Summary:
    """What the model reads instead of the turns before `cut`."""
    last = newest_summary(agent.log)
    text, _, older_names = last.content.partition(NAMES)
    dropped = [  # since the last cut, except prompts that a gate refused
        record
        for record in agent.log[last.kept_from : cut]
        if id(record) not in agent.conversation.withheld
    ]
    most = min(NAMES_TOKENS, NAMES_SHARE * budget)
    names = names_in(dropped, older_names, int(most / agent.token_rate))
    return Summary(f"{text}{NAMES}{names}", cut)


def names_in(records: Sequence[Record], older: str, most: int) -> str:
    """Collect the names and numbers in some messages, each once, newest first.

    After them come the names of an older list. All have at most `most` estimated tokens.
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
