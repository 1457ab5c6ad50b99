"""Shows the model only the newest results of tools whose results go stale.

Copy with: the core, tokens.py.

`@tool("...", ephemeral=2)` keeps at least the newest two results of that tool visible. Older ones
become a short placeholder in what the model sees; the log keeps them whole. A result that the model
has not seen yet is never hidden.

Hiding a result breaks the prefix that the provider has cached. So stale results are carried until
that has cost as much as hiding them would, and then go all at once. This is the rent-or-buy rule:
it needs no forecast and costs at most about twice what the best choice in hindsight does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pydantic import NonNegativeFloat

from ..events import PruneEvent
from ..loop import Loop
from ..messages import AssistantMessage, Message, Record, Summary, ToolMessage
from ..tokens import message_tokens


class Ephemeral(Loop):
    """Replaces old results of tools made with `ephemeral=N` by placeholders.

    ephemeral_write_price: the price of a token that the provider has not in its cache.
    ephemeral_read_price: the price of one that it has. Only the ratio of the two counts; where it
        is 1 or less, stale results go at once.
    ephemeral_per_turn: True lets them go at once in any case.
    """

    ephemeral_write_price: NonNegativeFloat = 1.25
    ephemeral_read_price: NonNegativeFloat = 0.1
    ephemeral_per_turn: bool = False

    async def context(self) -> list[Message]:
        messages = await super().context()
        if not any(isinstance(message, ToolMessage) and message.ephemeral for message in messages):
            return messages
        prices = self.ephemeral_write_price, self.ephemeral_read_price
        hidden, due = prune(self.log, *((0, 0) if self.ephemeral_per_turn else prices))
        if due:
            self.emit(PruneEvent(due))
        return hide(messages, {*hidden, *due})


def prune(
    log: Sequence[Record], write_price: float = 1.25, read_price: float = 0.1
) -> tuple[dict[str, int], list[str]]:
    """The ids of the results that are hidden, and those of the results to hide in the next request.

    Each reply in the log stands for a request with all that was before it. A hidden result's id
    has the place of the reply whose request was the first without it.
    """
    sizes: list[int] = []  # of each record as the model sees it, in tokens
    results: dict[int, ToolMessage] = {}  # by place
    newest: defaultdict[str, list[int]] = defaultdict(list)  # places of results, by tool
    stale: dict[int, int] = {}  # the other places, and the tokens that hiding saves there
    hidden: dict[int, int] = {}  # places of results, and of replies
    begin, reply = 0, 0  # of what is in view, and of what the model has not seen
    carried, broken = 0, False  # carried: token-turns of what was stale since a cut

    def due() -> tuple[list[int], bool]:
        """What is stale and was seen, and True if it goes now."""
        old = [at for at in stale if begin <= at < reply]
        behind = sum(sizes[min(old, default=0) : reply]) - sum(sizes[at] for at in old)
        return old, broken or carried * read_price >= behind * (write_price - read_price)

    for at, record in enumerate(log):
        sizes.append(message_tokens(record) if isinstance(record, Message) else 0)
        if isinstance(record, AssistantMessage):
            old, cut = due()
            carried += sum(stale[place] for place in old)
            for place in old if cut else ():
                sizes[place] -= stale.pop(place)
                hidden[place] = at
                carried = 0
            reply, broken = at, False
        elif isinstance(record, Summary):
            begin, carried, broken = record.keep, 0, True
        elif isinstance(record, ToolMessage) and record.ephemeral:
            results[at], places = record, newest[record.tool_name]
            places.append(at)
            while len(places) > record.ephemeral:
                place = places.pop(0)
                saved = sizes[place] - message_tokens(placeholder(results[place]))
                if saved > 0 or write_price <= read_price:
                    stale[place] = saved
    ids = {at: result.tool_call_id for at, result in results.items()}
    old, cut = due()
    return {ids[at]: hidden[at] for at in hidden}, [ids[at] for at in old if cut]


def hide(messages: Sequence[Message], ids: set[str]) -> list[Message]:
    """The messages, with placeholders instead of the results of the calls of these ids."""
    return [
        placeholder(message)
        if isinstance(message, ToolMessage) and message.tool_call_id in ids
        else message
        for message in messages
    ]


def placeholder(message: ToolMessage) -> ToolMessage:
    """The result with a text that says how much stood there, and where it still is."""
    name = (message.extra or {}).get("offloaded")
    again = f' read_offloaded(name="{name}") reads it again.' * bool(name)
    text = (
        f"[An older result of {message.tool_name} stood here: {len(message.text):,} characters. "
        f"Newer results follow.{again}]"
    )
    return replace(message, content=text)
