"""One line for each record of a run, for `logging` at level DEBUG.

Copy with: transcript.py and its imports.

    logging.basicConfig(level=logging.DEBUG)

A line has names, numbers and seconds, but no text, because what a model reads and writes may be
private.
"""

from __future__ import annotations

from ..messages import AssistantMessage, ToolMessage, UserMessage
from ..transcript import CallEntry


def describe(record: object) -> str:
    match record:
        case UserMessage():
            return f"message ({record.origin}): {len(record.text):,} characters"
        case AssistantMessage():
            calls = ", ".join(f"{call.name} {call.id}" for call in record.tool_calls)
            what = f"calls {calls}" if calls else f"{len(record.text):,} characters"
            usage = record.usage
            tokens = (
                f", {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out" if usage else ""
            )
            return f"reply of {record.model}: {what}{tokens}, {record.seconds or 0:.2f} s"
        case ToolMessage():
            kind = "error" if record.is_error else "result"
            size = f"{len(record.text):,} characters, {record.seconds or 0:.2f} s"
            return f"{kind} of {record.tool_name} {record.tool_call_id}: {size}"
        case CallEntry():
            return f"{type(record).__name__} {record.call_id}"
        case _:
            reason = getattr(record, "stop_reason", "")
            return f"{type(record).__name__} {reason}".strip()
