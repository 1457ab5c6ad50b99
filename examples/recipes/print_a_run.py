"""Progress of a run as printed lines: one line per message, call and result.

Use the lines during development, or in a server's log: pass a logger's `info` as `log_to`.
Exceptions of this function are logged and do not affect the run.
"""

import logging
from collections.abc import Callable, Iterator

from agentloop import (
    Agent,
    AssistantMessage,
    ScriptedModel,
    Summary,
    ToolMessage,
    UserMessage,
    tool,
)
from agentloop.models.scripted import call
from agentloop.transcript import Record, RunEnd


class Printed(Agent):
    log_to: Callable[[str], object] = print

    def record(self, record: Record) -> None:
        super().record(record)
        try:
            for line in lines_of(record):
                self.log_to(" ".join(line.split())[:160])
        except Exception:
            logging.exception("log_to failed")


def lines_of(record: Record) -> Iterator[str]:
    """Yield the lines that describe a record. Records without relevance are skipped."""
    if isinstance(record, UserMessage):
        yield f"user: {record.text}"
    elif isinstance(record, AssistantMessage):
        if record.text:
            yield f"{record.model or 'model'}: {record.text}"
        for tool_call in record.tool_calls:
            yield f"call: {tool_call.name} {tool_call.arguments}"
    elif isinstance(record, ToolMessage):
        kind = "error" if record.is_error else "result"
        yield f"{kind}: {record.tool_name}: {record.text}"
    elif isinstance(record, Summary):
        yield f"summary: {record.content}"
    elif isinstance(record, RunEnd):
        yield f"end: {record.stop_reason}"


@tool("Add two numbers")
def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    model = ScriptedModel(call("add", a=1, b=2), "It is\n3.")
    Printed(llm=model, tools=[add]).run_sync("What is 1 + 2?")
