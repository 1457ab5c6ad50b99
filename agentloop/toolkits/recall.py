"""The tool `recall`: the model finds what stood in the conversation and is no longer in view.

Copy with: the core.

An `Agent` whose tools are ephemeral, or that has tools and a `context_budget`, offers it. Any other
agent can have it, too: `tools=[..., recall]`. Pruned results and dropped turns are still in the
log, and the model searches them by words. `search` needs no model and no file, only the log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Annotated

from ..depends import Depends, current_agent
from ..loop import Loop
from ..messages import AssistantMessage, Message
from ..tools import tool
from ..transcript import Conversation, Records, is_own

PASSAGE = re.compile(r"(?s).{1,1000}(?:\n|$)|.{1,1000}")  # whole lines, if they are not too long
# a character of Chinese or Japanese, or the letters and digits in a row of another script
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
MOST_PASSAGES = 10
TITLE_SIZE = 150  # characters
NOT_FOUND = "None of these words was found. No longer in view are, the newest last:"


@tool(idempotent=True, read_only=True)
async def recall(agent: Annotated[Loop, Depends(current_agent)], words: str) -> str:
    """Find what is no longer in view: older tool results, calls and messages of this conversation.

    Args:
        words: words that stood in it or in the call: names, numbers, a path, the tool's name.
    """
    return search(agent.log, await agent.context(), words)


def search(log: Records, shown: Sequence[Message], question: str) -> str:
    """Return the passages that match a question best, from the texts of a log not among `shown`.

    Words count, in any order and case, and rare ones count more. The beginning of a text stands
    above its passages. If no word is found, return how the newest of these texts begin.
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
    matching = [at for at, score in enumerate(scores) if score]
    best = sorted(matching, key=lambda at: (scores[at], at))[-MOST_PASSAGES:]
    lines = list[str]()
    for at in sorted(best):
        title, place = places[at]
        lines += [place] if title in lines else [title, place]
    return "\n".join(lines)


def hidden(log: Records, shown: Sequence[Message]) -> list[str]:
    """Return the texts of a log that are not shown: first messages, then calls with results.

    Prompts that a gate refused are omitted.
    """
    conversation = Conversation(log).catch_up()
    seen = {id(message) for message in shown}
    texts = list[str]()
    for record in log:
        if id(record) in seen or id(record) in conversation.withheld:
            continue
        if is_own(record):
            texts.append(f"user: {record.text}")
        elif isinstance(record, AssistantMessage) and record.text:
            texts.append(f"assistant: {record.text}")
    for state in conversation.states.values():
        if state.result and state.call.name != recall.name and id(state.result) not in seen:
            arguments = "\n".join(map(str, (state.call.parsed or {}).values()))
            texts.append(f"{state.call.name}: {arguments}\n{state.result.text}")
    return texts


def words_in(text: str) -> set[str]:
    """Return the words of a text in lower case, without the "s" of a plural."""
    return {word.rstrip("s") for word in WORD.findall(text.casefold())}
