"""OpenTelemetry spans for runs, model requests and tool calls.

Copy with: the core, common/records.py. Requires `pip install 'opentelemetry-api>=1.28'`, and an
SDK.

    class Traced(Tracing, Agent): ...    # first, so that spans include the work of other mixins

Names, attributes and the JSON format of messages follow OpenTelemetry's semantic conventions for
generative AI: https://github.com/open-telemetry/semantic-conventions-genai
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from opentelemetry import trace
from pydantic_core import to_json

from ..common.records import to_dict
from ..content import describe_error
from ..loop import Loop
from ..messages import (
    JSON,
    AssistantMessage,
    Message,
    Stop,
    ToolCall,
    ToolMessage,
    Usage,
)
from ..model import Request
from ..transcript import Record, RunEnd, RunStart, is_from_user, usage_of

PROVIDERS = {"google": "gcp.gemini"}  # other names come from the class: ChatOpenAI, "openai"
# stop reasons of replies and runs, and what the conventions call them; others have the same name
FINISH_REASONS = {
    "end": "stop",
    "completed": "stop",
    "done": "stop",
    "tool_calls": "tool_call",
    "refused": "content_filter",
}


class Tracing(Loop):
    """Makes an `invoke_agent` span for each run, with `chat` and `execute_tool` spans inside.

    agent_name: part of the name of a run's span.
    trace_content: whether spans contain the system prompt, the text of messages, tool definitions,
        arguments, results and error messages. They never contain images and files.
    """

    agent_name: str = "agent"
    trace_content: bool = False

    def record(self, record: Record) -> None:
        super().record(record)
        if isinstance(record, RunStart):
            about = {"gen_ai.agent.name": self.agent_name, "gen_ai.request.model": self.llm.model}
            start = self.log[-1]  # as the mixins after this one have recorded it
            if isinstance(start, RunStart) and start.session:
                about["gen_ai.conversation.id"] = start.session
            self._ends = ExitStack()
            self._span = self._ends.enter_context(
                self._inside("invoke_agent", self.agent_name, about)
            )
        elif isinstance(record, RunEnd):
            self._end_span(record)

    def _end_span(self, end: RunEnd) -> None:
        """Put the outcome of a run into its span, and end the span."""
        run = self.conversation.run
        reasons = [reason_of(each) for each in run if isinstance(each, AssistantMessage)]
        self._span.set_attributes(attributes_of(reasons[-1:], usage_of(run)))
        self._span.set_attribute("agentloop.stop_reason", end.stop_reason)
        if self.trace_content:
            withheld = self.conversation.withheld
            prompts = [each for each in run if is_from_user(each) and id(each) not in withheld]
            reply = AssistantMessage(end.text, stop_reason=end.stop_reason)
            content = {
                "gen_ai.input.messages": json_text([*map(as_message, prompts)]),
                "gen_ai.output.messages": json_text([as_answer(reply)]),
                "input.value": "\n".join(prompt.text for prompt in prompts),  # for Phoenix
                "output.value": end.text,
            }
            self._span.set_attributes(content)
        if end.error:
            self._fail(self._span, end.error.partition(":")[0], end.error)
        self._ends.close()

    async def call_model(self, request: Request) -> AssistantMessage:
        llm = request.model or self.llm
        with self._inside("chat", llm.model, {"gen_ai.request.model": llm.model}) as span:
            if self.trace_content:
                span.set_attributes(content_of(request))
            reply = await super().call_model(request)
            span.set_attributes(attributes_of([reason_of(reply)], reply.usage or Usage()))
            span.set_attribute("gen_ai.response.model", reply.model or llm.model)
            if self.trace_content:
                span.set_attribute("gen_ai.output.messages", json_text([as_answer(reply)]))
        return reply

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        about = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id}
        if self.trace_content:
            about["gen_ai.tool.call.arguments"] = call.arguments
        with self._inside("execute_tool", call.name, about) as span:
            result = await super().call_tool(call)
            if result.is_error:
                self._fail(span, "tool_error", result.text)
            if self.trace_content:
                span.set_attribute("gen_ai.tool.call.result", result.text)
        return result

    @contextmanager
    def _inside(self, operation: str, name: str, about: dict[str, str]) -> Generator[trace.Span]:
        """Open a span around the block, as a child of the current span."""
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
                self._fail(span, type(error).__name__, describe_error(error))
                raise

    def _fail(self, span: trace.Span, kind: str, message: str) -> None:
        """Mark a span as failed. The message may be private."""
        span.set_attribute("error.type", kind)
        span.set_status(trace.StatusCode.ERROR, message if self.trace_content else None)


def attributes_of(reasons: Sequence[str], usage: Usage) -> JSON:
    return {
        "gen_ai.response.finish_reasons": reasons,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def content_of(request: Request) -> dict[str, str]:
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        for tool in request.tools
        if not tool.deferred
    ]
    return {
        "gen_ai.input.messages": json_text([*map(as_message, request.messages)]),
        "gen_ai.tool.definitions": json_text(tools),
    }


def as_message(message: Message) -> JSON:
    """A message as the conventions write it: its role, with text and calls as parts."""
    parts: list[JSON] = [{"type": "text", "content": message.text}]
    if isinstance(message, ToolMessage):
        answer = {"id": message.tool_call_id, "response": message.text}
        parts = [{"type": "tool_call_response"} | answer]
    elif isinstance(message, AssistantMessage):
        parts += [{"type": "tool_call"} | to_dict(call) for call in message.tool_calls]
    return {"role": to_dict(message)["type"], "parts": parts}


def as_answer(reply: AssistantMessage) -> JSON:
    """A reply as the conventions write it."""
    return as_message(reply) | {"finish_reason": reason_of(replace(reply, finish_reason=None))}


def reason_of(reply: AssistantMessage) -> str:
    """Why a reply ended, in the provider's word, or else in that of the conventions."""
    reason = reply.stop_reason or "end"
    return reply.finish_reason or FINISH_REASONS.get(reason, reason)


def json_text(value: object) -> str:
    """JSON text: an attribute can't hold a list of objects."""
    return to_json(value).decode()
