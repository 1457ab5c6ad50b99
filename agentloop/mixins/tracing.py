"""OpenTelemetry spans for runs, model requests and tool calls.

Copy with: the core, common/records.py. Requires `pip install 'opentelemetry-api>=1.28'`, and an
SDK.

    class Traced(Tracing, Agent): ...    # first, so that spans include the work of other mixins

Names, attributes and the JSON format of messages follow OpenTelemetry's semantic conventions for
generative AI: https://github.com/open-telemetry/semantic-conventions-genai
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from opentelemetry import trace
from pydantic_core import to_json

from ..common.records import to_dict
from ..loop import Loop, Request
from ..messages import (
    JSON,
    AssistantMessage,
    Message,
    Record,
    RunEnd,
    RunStart,
    Stop,
    ToolCall,
    ToolMessage,
    Usage,
)
from ..transcript import usage_of

PROVIDERS = {"google": "gcp.gemini"}  # other names come from the class: ChatOpenAI, "openai"
# agentloop's stop reasons, and the names in the conventions. Other stop reasons have equal names.
FINISH_REASONS = {"end": "stop", "tool_calls": "tool_call", "refused": "content_filter"}


class Tracing(Loop):
    """Creates an `invoke_agent` span for each run, with `chat` and `execute_tool` child spans.

    agent_name: part of the name of a run's span.
    trace_content: whether spans include the system prompt, the text of messages, tool definitions,
        arguments and results. Images and files are never included.
    """

    agent_name: str = "agent"
    trace_content: bool = False

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, RunStart):
            about = {"gen_ai.agent.name": self.agent_name, "gen_ai.request.model": self.llm.model}
            start = self.log[-1]  # as recorded by the subsequent mixins
            if isinstance(start, RunStart) and start.session:
                about["gen_ai.conversation.id"] = start.session
            self._ends = ExitStack()
            self._span = self._ends.enter_context(
                self._inside("invoke_agent", self.agent_name, about)
            )
        elif isinstance(record, RunEnd):
            usage = usage_of(self.conversation.run)
            self._span.set_attributes(attributes_of(record.stop_reason, usage))
            if record.error:
                # the details may contain private content
                fail(self._span, record.error.partition(":")[0])
            self._ends.close()

    async def call_model(self, request: Request) -> AssistantMessage:
        llm = request.model or self.llm
        with self._inside("chat", llm.model, {"gen_ai.request.model": llm.model}) as span:
            if self.trace_content:
                span.set_attributes(content_of(request))
            reply = await super().call_model(request)
            reason = reply.stop_reason or "end"
            reason = FINISH_REASONS.get(reason, reason)
            span.set_attributes(attributes_of(reason, reply.usage or Usage()))
            span.set_attribute("gen_ai.response.model", reply.model or llm.model)
            if self.trace_content:
                answer = as_message(reply) | {"finish_reason": reason}
                span.set_attribute("gen_ai.output.messages", as_json([answer]))
        return reply

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        about = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id}
        if self.trace_content:
            about["gen_ai.tool.call.arguments"] = call.arguments
        with self._inside("execute_tool", call.name, about) as span:
            result = await super().call_tool(call)
            if result.is_error:
                fail(span, "tool_error")
            if self.trace_content:
                span.set_attribute("gen_ai.tool.call.result", result.text)
        return result

    @contextmanager
    def _inside(self, operation: str, name: str, about: dict[str, str]) -> Generator[trace.Span]:
        """Open a span for the duration of the block, as a child of the current span."""
        provider = type(self.llm).__name__.removeprefix("Chat").lower()
        about["gen_ai.operation.name"] = operation
        about["gen_ai.provider.name"] = PROVIDERS.get(provider, provider)
        with trace.get_tracer("agentloop").start_as_current_span(
            f"{operation} {name}",
            kind=trace.SpanKind.CLIENT if operation == "chat" else trace.SpanKind.INTERNAL,
            attributes=about,
            record_exception=False,  # the error message may contain content
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Stop:
                raise
            except BaseException as error:
                fail(span, type(error).__name__)
                raise


def fail(span: trace.Span, kind: str) -> None:
    """Mark a span as failed, without the error message."""
    span.set_attribute("error.type", kind)
    span.set_status(trace.StatusCode.ERROR)


def attributes_of(reason: str, usage: Usage) -> JSON:
    """Return attributes for the stop reason and the token usage of a run or a request."""
    return {
        "gen_ai.response.finish_reasons": [reason],
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def content_of(request: Request) -> dict[str, str]:
    """Return attributes for the messages and tools of a request."""
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        for tool in request.tools
    ]
    return {
        "gen_ai.input.messages": as_json([*map(as_message, request.messages)]),
        "gen_ai.tool.definitions": as_json(tools),
    }


def as_message(message: Message) -> JSON:
    """Return a message in the format of the conventions: role, and text and calls as parts."""
    parts: list[JSON] = [{"type": "text", "content": message.text}]
    if isinstance(message, ToolMessage):
        answer = {"id": message.tool_call_id, "response": message.text}
        parts = [{"type": "tool_call_response"} | answer]
    elif isinstance(message, AssistantMessage):
        parts += [{"type": "tool_call"} | to_dict(call) for call in message.tool_calls]
    return {"role": to_dict(message)["type"], "parts": parts}


def as_json(value: object) -> str:
    """Return a value as JSON text, because attributes cannot contain lists of objects."""
    return to_json(value).decode()
