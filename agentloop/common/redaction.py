"""A log only grows: to delete something, make a new one that leaves it out.

Copy with: transcript.py and its imports.

    secret = "4111 1111 1111 1111"

    def masked(record):
        return load_record(dump_record(record).replace(secret.encode(), b"***"))

    path = session_path("monday")
    write_log(session_path("clean"), redacted(read_log(path), masked))
    path.unlink()

Close the agent first. For a session in another store, or an agent without a session, pass the
records to `record` of a new agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields

from ..messages import Message, Unknown
from ..transcript import CallState, Conversation, Mark, Record, ToolStart, placeholder_result

REDACTED = Unknown({"type": "left_out"})


def redacted(records: Iterable[Record], redact: Callable[[Record], Record | None]) -> list[Record]:
    """Make a new log: it has what `redact` returns for each record, or an empty place for None.

    The same text may be in several records: an answer also in the RunEnd, a queued message also in
    its Sent, anything in a Summary, in the RunStart's prompt and in records of sub-agents. `redact`
    gets them all. If you leave out a message, an entry that holds it is left out, too.

    Nothing runs again: if something about a call was changed or left out, and it could still run,
    it's closed. Its outcome is unknown, unless the old log says that it never started.
    """
    old = [*records]
    new = [redact(record) or REDACTED for record in old]  # empty places: positions stay the same
    gone = [record for record, now in zip(old, new, strict=True) if now is REDACTED]
    deleted = [record for record in gone if isinstance(record, Message)]
    new = [REDACTED if holds_any(record, deleted) else record for record in new]
    before = Conversation(old).catch_up().states
    for state in Conversation(new).catch_up().states.values():
        may_run = state.may_start or state.result is None
        if may_run and not state.call.parent_id and state != before.get(state.call.id):
            new.append(closing_result(state, before.get(state.call.id)))
    return new


def holds_any(record: Record, messages: Iterable[Message]) -> bool:
    """Whether a log entry holds one of the messages in a field."""
    if not isinstance(record, Mark):
        return False
    held = [getattr(record, field.name) for field in fields(record)]
    return any(message in held for message in messages)


def closing_result(state: CallState, before: CallState | None) -> Record:
    """A placeholder result for a call. `before` is its state in the old log."""
    never_started = before and not before.start and not before.result
    start = None if never_started else ToolStart(state.call.id)
    return placeholder_result(CallState(state.call, start=start))
