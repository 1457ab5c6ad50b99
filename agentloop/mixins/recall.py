"""Offers `recall`: it finds what stood in the conversation and is no longer in view.

Copy with: the core, common/tokens.py.

Results that were pruned and turns that were left out are still in the agent's log. The model asks
for them in words. `search` needs no model and no file: it looks at the log alone. `context_info`
counts what is in view and what is not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Annotated

from ..common.tokens import count_tokens, message_tokens, tool_tokens
from ..depends import Depends, current_agent
from ..loop import Loop
from ..messages import AssistantMessage, Message, RunEnd, ToolMessage, UserMessage
from ..tools import Tool, tool
from ..transcript import Records, is_own

PASSAGE = re.compile(r"(?s).{1,1000}(?:\n|$)|.{1,1000}")  # whole lines, if they are not too long
# a character of Chinese or Japanese, or the letters and digits in a row of another script
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
MOST_PASSAGES = 12
WORTH = 0.1  # a place needs this share of the best one's score
TITLE_SIZE = 150  # characters
NOT_FOUND = "None of these words was found. No longer in view are, the newest last:"


class Recall(Loop):
    """Offers `recall` in every turn. `Agent(context_budget=...)` does so without this class."""

    def toolset(self) -> Sequence[Tool]:
        return with_recall(super().toolset())


@tool(idempotent=True, read_only=True)
async def recall(agent: Annotated[Loop, Depends(current_agent)], words: str) -> str:
    """Find what is no longer in view: older tool results, calls and messages of this conversation.

    Args:
        words: words that stood in it or in the call: names, numbers, a path, the tool's name.
    """
    return search(agent.log, await agent.context(), words)


def with_recall(tools: Sequence[Tool]) -> Sequence[Tool]:
    """Return the tools and `recall`. An application's own tool of this name stays instead."""
    if any(each.name == recall.name for each in tools):
        return tools
    return [*tools, recall]


def search(log: Records, shown: Sequence[Message], question: str) -> str:
    """Return the places in a log that match a question best, of what is not among `shown`.

    Words count, in any order and case, and rare ones count more. Above the places of a text stands
    how it begins. If no word is found, say what there is to search.
    """
    texts = hidden(log, shown)
    places = list[tuple[str, str]]()
    for text in texts:
        places += [(text[:TITLE_SIZE], place) for place in PASSAGE.findall(text)]
    words = [words_in(title + place) for title, place in places]
    times = Counter(chain.from_iterable(words))
    wanted = words_in(question) & times.keys()
    if not wanted:
        return "\n".join([NOT_FOUND, *(text[:TITLE_SIZE] for text in texts[-20:])])
    scores = [sum(1 / times[word] for word in wanted & there) for there in words]
    best = sorted(range(len(places)), key=lambda at: (scores[at], at))[-MOST_PASSAGES:]
    worth = WORTH * max(scores)
    lines = list[str]()
    for at in sorted(best):
        title, place = places[at]
        if scores[at] >= worth:
            lines += [place] if title in lines else [title, place]
    return "\n".join(lines)


def hidden(log: Records, shown: Sequence[Message]) -> list[str]:
    """Return the texts in a log that are not shown. A call and its result are one text.

    What no model has answered is left out if the run was refused: a gate may have hidden it.
    """
    seen = {id(message) for message in shown}
    results = {each.tool_call_id: each for each in log if isinstance(each, ToolMessage)}
    texts = list[str]()
    unanswered = list[str]()
    for record in log:
        if is_own(record) and id(record) not in seen:
            unanswered.append(f"user: {record.text}")
        elif isinstance(record, RunEnd) and record.stop_reason == "refused":
            unanswered.clear()
        elif isinstance(record, AssistantMessage):
            texts += unanswered
            unanswered.clear()
            if record.text and id(record) not in seen:
                texts.append(f"assistant: {record.text}")
            for call in record.tool_calls:
                result = results.get(call.id)
                if result and call.name != recall.name and not {id(record), id(result)} <= seen:
                    arguments = "\n".join(map(str, (call.parsed or {}).values()))
                    texts.append(f"{call.name}: {arguments}\n{result.text}")
    return texts


async def context_info(agent: Loop) -> dict[str, int]:
    """Count the tokens of the next request by kind: `{"system prompt": 12, "tools": 90, ...}`.

    The kinds are "system prompt", "tools", "user", "replies", "calls", "results of NAME", and the
    origin of what is said in the user's place, such as "memory" or "summary". "hidden" is what the
    log has and the request has not.
    """
    shown = await agent.context()
    sizes = Counter({"system prompt": 0, "tools": tool_tokens(agent.toolset())})
    for message in shown:
        size = message_tokens(message)
        if isinstance(message, AssistantMessage):
            said = count_tokens(message.text)
            sizes["replies"] += said
            sizes["calls"] += size - said
        elif isinstance(message, ToolMessage):
            sizes[f"results of {message.tool_name}"] += size
        elif isinstance(message, UserMessage):
            sizes[message.origin] += size
        else:
            sizes["system prompt"] += size
    sizes["hidden"] = sum(map(count_tokens, hidden(agent.log, shown)))
    return sizes


def words_in(text: str) -> set[str]:
    """Return the words of a text in lower case, without the "s" of a plural."""
    return {word.rstrip("s") for word in WORD.findall(text.casefold())}
