"""Watch a run: a line per record, a span per request and call, an alarm if nothing happens.

Use lines during development or in a server's log (pass a logger's `info` as `log_to`), spans where
operators watch many services at once, and the alarm where somebody waits for the answer. If
`log_to` raises, the run goes on.

Any exporter works in place of the console's, such as the one for OTLP. With `trace_content = True`
the spans contain prompts, answers and tool data. This needs `pip install opentelemetry-sdk`;
without spans, leave out `Tracing` and its imports. The alarm doesn't end the run: call
`agent.interrupt()` in your function for that.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    ScriptedModel,
    Summary,
    ToolMessage,
    UserMessage,
    call,
    tool,
)
from agentloop.mixins.tracing import Tracing
from agentloop.transcript import Record, RunEnd


class Printed(Loop):
    log_to: Callable[[str], object] = print

    def record(self, record: Record) -> None:
        super().record(record)
        try:
            for line in lines_of(record):
                self.log_to(" ".join(line.split())[:160])
        except Exception:
            logging.exception("log_to failed")


def lines_of(record: Record) -> Iterator[str]:
    """Yield the lines that describe a record; other records have none."""
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


def spans_to_console() -> None:
    """Print the name of each span, and its input tokens."""

    def one_line(span: ReadableSpan) -> str:
        return f"{span.name} {(span.attributes or {}).get('gen_ai.usage.input_tokens', '')}\n"

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=one_line)))
    trace.set_tracer_provider(provider)


async def watch(agent: Loop, seconds: float, stalled: Callable[[str], object]) -> None:
    """Call `stalled` with the last event's name when a run emits no event for `seconds`."""
    news, last = asyncio.Event(), "nothing yet"

    def listen(event: object) -> None:
        nonlocal last
        last = type(event).__name__
        news.set()

    agent.listeners = [*agent.listeners, listen]
    while True:
        news.clear()
        try:
            await asyncio.wait_for(news.wait(), seconds)
        except TimeoutError:
            if agent.running:
                stalled(last)


@tool("Add two numbers, slowly")
async def add(a: int, b: int) -> int:
    await asyncio.sleep(0.3)
    return a + b


class Watched(Printed, Tracing, Agent):
    agent_name = "adder"


async def main() -> None:
    spans_to_console()
    agent = Watched(llm=ScriptedModel(call("add", a=1, b=2), "It is\n3."), tools=[add])
    watcher = asyncio.create_task(watch(agent, 0.1, lambda last: print("silent since", last)))
    await agent.run("What is 1 + 2?")
    watcher.cancel()


if __name__ == "__main__":
    asyncio.run(main())
