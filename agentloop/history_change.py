"""The adaptation of a log whose history an application replaces: see `Log.replace`.

Copy with: transcript.py and its imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .messages import AssistantMessage, Mark, Message, Record, ToolStart
from .transcript import CallState, Conversation, placeholder_result


def adapt_history(old: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """Return the new records with adapted log entries, and with results of closed calls."""
    change = HistoryChange(old, new)
    kept = [record for record in new if adapted(record, change)]
    change = HistoryChange(old, kept)  # positions exclude the entries deleted above
    kept = [adapted(record, change) or record for record in kept]
    return [*kept, *results_of_closed_calls(old, kept)]


def adapted(record: Record, change: HistoryChange) -> Record | None:
    """Return the record for a changed history, or None if the record is obsolete."""
    return record.after_change(change) if isinstance(record, Mark) else record


def results_of_closed_calls(old: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """Return placeholder results for calls that the new records would make executable again."""
    states = Conversation(old).catch_up().states
    results = list[Record]()
    conversation = Conversation(new).catch_up()
    # a deferred call has a result, and starts after a decision
    deferred = [state for state in conversation.states.values() if state.result and state.waits]
    for state in [*conversation.open_calls, *deferred]:
        before = states.get(state.call.id)
        if before is None or not is_reopened(state, before):
            continue
        start = before.start
        if before.result and before.result.origin == "tool":
            start = start or ToolStart(state.call.id)
        result = placeholder_result(CallState(state.call, start=start))
        results.append(state.call.record_of(result))
    return results


def is_reopened(state: CallState, before: CallState) -> bool:
    """Return whether the start or the result of a call, or a nested call, was deleted.

    A tool could repeat a deleted nested call.
    """
    return state.inner != before.inner or (state.waits and not before.waits)


class HistoryChange:
    """The previous and the new records of a log, for log entries that refer to other records.

    deleted_calls: ids of the tool calls that only the previous records contain.
    deleted_texts: texts of the messages that only the previous records contain.
    """

    def __init__(self, old: Sequence[Record], new: Sequence[Record]) -> None:
        self.old, self.new = old, new
        self.deleted_calls = call_ids(old) - call_ids(new)
        self.deleted_texts = texts_of(old) - texts_of(new)

    def position(self, index: int) -> int:
        """Return the new index of a position between the previous records.

        Preserved records remain on their side of the position. An added record takes the position
        of the previous record that followed its predecessor.
        """
        old_index = {id(record): at for at, record in enumerate(self.old)}
        position = 0
        place = -1
        for record in self.new:
            place = old_index.get(id(record), place + 1)
            position += place < index
        return position

    def is_deleted(self, message: Message) -> bool:
        """Return whether only the previous records contain the message."""
        return message in self.old and message not in self.new


def call_ids(records: Sequence[Record]) -> set[str]:
    """Return the ids of all tool calls in the records."""
    ids = set[str]()
    for record in records:
        if isinstance(record, AssistantMessage):
            ids.update(call.id for call in record.tool_calls)
    for call_id, state in Conversation(records).catch_up().states.items():
        if state.call.parent_id in ids:
            ids.add(call_id)
    return ids


def texts_of(records: Iterable[Record]) -> set[str]:
    """Return the texts of all messages in the records."""
    return {record.text for record in records if isinstance(record, Message)}
