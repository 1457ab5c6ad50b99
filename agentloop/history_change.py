"""The adaptation of a log whose history an application replaces: see `Log.replace`.

Copy with: transcript.py and its imports.
"""

from collections.abc import Sequence

from .messages import HistoryChange, Mark, Record, ToolStart
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
