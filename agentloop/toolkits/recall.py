"""The tool `recall`: the model searches what it no longer sees of the conversation.

Copy with: the core.

    agent = Loop(llm=llm, tools=[read, recall])

Hidden results and dropped turns stay in the log, where the model finds them by keywords. If an
`Agent` may hide something, it offers `recall` by itself: see `offer_recall`. `search` only needs a
log, and neither a model nor a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from math import fsum
from typing import Annotated

from ..depends import Depends, current_agent
from ..loop import Loop
from ..messages import AssistantMessage, Message
from ..tools import tool
from ..transcript import Conversation, Records, is_from_user

PASSAGE = re.compile(r"(?s).{1,1000}(?:\n|$)|.{1,1000}")  # complete lines, up to 1,000 characters
# a Chinese or Japanese character, or consecutive letters and digits of another script
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
MOST_PASSAGES = 10
TITLE_SIZE = 150  # characters
NOT_FOUND = "None of these words was found. Texts no longer in view, newest last:"


@tool(idempotent=True, read_only=True)
def recall(agent: Annotated[Loop, Depends(current_agent)], words: str) -> str:
    """Find what was removed from this conversation: older tool results, calls and messages.

    Args:
    words: keywords of the content or of the call: names, numbers, a path, the tool's name.
    """
    return search(agent.log, agent.messages, words)


def search(log: Records, in_view: Sequence[Message], question: str) -> str:
    """Find the passages that match a question best, in the messages that aren't in view.

    The order of words and their case don't matter; rare words weigh more. Before the passages of a
    message comes its beginning. If nothing matches, you get the beginnings of the last 20 texts.

    in_view: the messages that the model sees: `agent.messages`.
    """
    texts = hidden_texts(log, in_view)
    passages = [(text[:TITLE_SIZE], passage) for text in texts for passage in PASSAGE.findall(text)]
    best = best_matches(passages, words_in(question))
    if not best:
        return "\n".join([NOT_FOUND, *(text[:TITLE_SIZE] for text in texts[-20:])])
    lines = list[str]()
    for title, passage in best:
        if title not in lines:
            lines.append(title)
        lines.append(passage)
    return "\n".join(lines)


def best_matches(passages: Sequence[tuple[str, str]], wanted: set[str]) -> list[tuple[str, str]]:
    """Choose the passages that match best, in their order. Each has a title and a text."""
    words = [words_in(title + text) for title, text in passages]
    times = Counter(chain.from_iterable(words))
    # fsum: a sum depends on the order of the set, which differs from process to process
    scores = [fsum(1 / times[word] for word in wanted & there) for there in words]
    ranked = sorted((score, at) for at, score in enumerate(scores) if score)
    return [passages[at] for at in sorted(at for _, at in ranked[-MOST_PASSAGES:])]


def hidden_texts(log: Records, in_view: Sequence[Message]) -> list[str]:
    """The texts of a log that aren't in view: first messages, then calls with results.

    Prompts that a gate refused are left out.
    """
    conversation = Conversation(log).catch_up()
    omitted = {*conversation.withheld, *map(id, in_view)}
    texts = list[str]()
    for record in log:
        if id(record) in omitted:
            continue
        if is_from_user(record):
            texts.append(f"user: {record.text}")
        elif isinstance(record, AssistantMessage) and record.text:
            texts.append(f"assistant: {record.text}")
    for state in conversation.states.values():
        is_listed = not state.call.parent_id and state.call.name != recall.name
        if is_listed and state.result and id(state.result) not in omitted:
            arguments = "\n".join(map(str, (state.call.parsed or {}).values()))
            texts.append(f"{state.call.name}: {arguments}\n{state.result.text}")
    return texts


def words_in(text: str) -> set[str]:
    """The words of a text in lower case. A plural "s" doesn't count."""
    return {word.rstrip("s") for word in WORD.findall(text.casefold())}
