"""Traces: runs, requests and tool calls as OpenTelemetry spans.

Use traces where operators monitor many services at once. Any exporter can replace the console
exporter, such as the OTLP exporter for dashboards. With `trace_content = True` the spans also
contain prompts, answers and tool data. Requires `pip install opentelemetry-sdk`.
"""

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from agentloop import Agent, ScriptedModel, call, tool
from agentloop.mixins.tracing import Tracing


def one_line(span: ReadableSpan) -> str:
    tokens = (span.attributes or {}).get("gen_ai.usage.input_tokens", "")
    return f"{span.name} {tokens}\n"


@tool("Add two numbers")
def add(a: int, b: int) -> int:
    return a + b


class Traced(Tracing, Agent):
    agent_name = "adder"


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=one_line)))
    trace.set_tracer_provider(provider)
    Traced(llm=ScriptedModel(call("add", a=2, b=3), "5"), tools=[add]).run_sync("2 + 3?")


if __name__ == "__main__":
    main()
