"""Tracing: spans with the names and parents of the OpenTelemetry conventions."""

import asyncio
import json
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    BadRequest,
    Depends,
    ImagePart,
    Loop,
    ScriptedModel,
    Session,
    Stop,
    Usage,
    current_agent,
    tool,
)
from agentloop.mixins.tracing import Tracing
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import add, fail

pytest.importorskip("opentelemetry.sdk")


class Traced(Tracing, Agent): ...


# Required fields of messages and tool definitions in the conventions' JSON schemas:
# https://github.com/open-telemetry/semantic-conventions-genai, gen-ai-input-messages.json,
# gen-ai-output-messages.json and gen-ai-tool-definitions.json. Each part has a type, which requires
# the fields below. Dashboards drop the complete attribute if one of its parts is invalid.
PARTS = {"text": {"content"}, "tool_call": {"name"}, "tool_call_response": {"response"}}
ROLES = {"system", "user", "assistant", "tool"}
FINISH_REASONS = {"stop", "length", "content_filter", "tool_call", "error"}


def messages_of(span, which):
    """Return the messages in a span's attribute after checking them against the schema."""
    messages = json.loads(span.attributes[f"gen_ai.{which}.messages"])
    for message in messages:
        assert message["role"] in ROLES
        for part in message["parts"]:
            assert PARTS[part["type"]] <= part.keys(), part
            assert isinstance(part.get("content", ""), str)
            assert isinstance(part.get("name", ""), str)
        if which == "output":  # required by older versions of the schema
            assert message["finish_reason"] in FINISH_REASONS
    return messages


@pytest.fixture(scope="module")
def exporter():
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter):
    exporter.clear()
    return lambda: {span.name: span for span in exporter.get_finished_spans()}


def parent_of(span, spans):
    return next(name for name, s in spans.items() if s.context.span_id == span.parent.span_id)


class TestTracing(test_loop.TestLoop):
    agent_class = Tracing

    async def test_a_run_has_spans_for_its_requests_and_calls_with_correct_parents(self, spans):
        answer = AssistantMessage("3", usage=Usage(10, 5, 4, 2, 1))
        await Traced(llm=ScriptedModel(call("add", a=1, b=2), answer), tools=[add]).run("x")
        finished = spans()
        assert set(finished) == {"invoke_agent agent", "chat scripted", "execute_tool add"}
        assert finished["invoke_agent agent"].parent is None
        for name in ("chat scripted", "execute_tool add"):
            assert parent_of(finished[name], finished) == "invoke_agent agent"
        chat = {
            key.removeprefix("gen_ai."): v
            for key, v in finished["chat scripted"].attributes.items()
        }
        assert (chat["operation.name"], chat["usage.input_tokens"]) == ("chat", 10)
        assert chat["usage.cache_read.input_tokens"] == 4
        assert chat["response.finish_reasons"] == ("stop",)
        assert finished["execute_tool add"].attributes["gen_ai.tool.call.id"]
        run = finished["invoke_agent agent"].attributes
        assert run["gen_ai.response.finish_reasons"] == ("stop",)
        assert run["agentloop.stop_reason"] == "completed"
        assert run["gen_ai.request.model"] == "scripted"

    async def test_the_span_of_a_nested_call_is_a_child_of_the_calling_tools_span(self, spans):
        @tool("Add twice")
        async def twice(a: int, agent: Annotated[Loop, Depends(current_agent)]) -> int:
            return sum(await asyncio.gather(*(agent.call(add, a=a, b=b) for b in (1, 2))))

        llm = ScriptedModel(call("twice", a=1), "5")
        await Traced(llm=llm, tools=[add, twice]).run("x")
        finished = spans()
        assert parent_of(finished["execute_tool add"], finished) == "execute_tool twice"
        assert parent_of(finished["execute_tool twice"], finished) == "invoke_agent agent"

    async def test_the_span_of_a_run_has_the_total_tokens_of_its_requests(self, spans):
        replies = [AssistantMessage("", (call("add", a=1, b=2),), usage=Usage(10, 5, 4))]
        replies += [AssistantMessage("3", usage=Usage(20, 1)), AssistantMessage("3")]
        agent = Traced(llm=ScriptedModel(*replies), tools=[add])
        await agent.run("x")
        run = spans()["invoke_agent agent"].attributes
        used = [run[f"gen_ai.usage.{which}_tokens"] for which in ("input", "output")]
        assert (used, run["gen_ai.usage.cache_read.input_tokens"]) == ([30, 6], 4)
        await agent.run("again")
        assert spans()["invoke_agent agent"].attributes["gen_ai.usage.input_tokens"] == 0

    async def test_messages_and_tools_conform_to_the_schemas_of_the_conventions(self, exporter):
        exporter.clear()
        picture = ImagePart(data=b"pixel", media_type="image/png")
        request = AssistantMessage("I add.", (call("add", a=1, b=2),), stop_reason="tool_calls")
        agent = Traced(
            llm=ScriptedModel(request, "3"),
            tools=[add],
            system_prompt="Be brief.",
            trace_content=True,
        )
        await agent.run(["What is it?", picture])
        [first, _, last, run] = spans = exporter.get_finished_spans()
        kinds = [span.kind.name for span in spans]
        assert kinds == ["CLIENT", "INTERNAL", "CLIENT", "INTERNAL"]
        history = messages_of(last, "input")
        assert [message["role"] for message in history] == ["system", "user", "assistant", "tool"]
        assert history[1]["parts"] == [{"type": "text", "content": "What is it?"}]
        [text, asks] = history[2]["parts"]
        assert (text["content"], json.loads(asks["arguments"])) == ("I add.", {"a": 1, "b": 2})
        [answer] = history[3]["parts"]
        assert (answer["id"], answer["response"]) == (asks["id"], "3")
        assert messages_of(first, "output")[0]["finish_reason"] == "tool_call"
        assert messages_of(last, "output")[0]["finish_reason"] == "stop"
        [definition] = json.loads(last.attributes["gen_ai.tool.definitions"])
        assert (definition["type"], definition["name"]) == ("function", "add")
        assert definition["parameters"]["required"] == ["a", "b"]
        assert definition["description"] == add.description
        assert (run.attributes["input.value"], run.attributes["output.value"]) == (
            "What is it?",
            "3",
        )

    @pytest.mark.parametrize(
        ("stop_reason", "reason"),
        [(None, "stop"), ("length", "length"), ("refused", "content_filter"), ("new", "new")],
    )
    async def test_the_finish_reason_uses_the_values_of_the_conventions(
        self, spans, stop_reason, reason
    ):
        llm = ScriptedModel(AssistantMessage("x", stop_reason=stop_reason))
        await Traced(llm=llm).run("x")
        reasons = spans()["chat scripted"].attributes["gen_ai.response.finish_reasons"]
        assert reasons == (reason,)

    async def test_a_span_has_the_finish_reason_of_the_provider(self, spans):
        reply = AssistantMessage("x", stop_reason="end", finish_reason="end_turn")
        await Traced(llm=ScriptedModel(reply), trace_content=True).run("x")
        finished = spans()
        for name in ("chat scripted", "invoke_agent agent"):
            reasons = finished[name].attributes["gen_ai.response.finish_reasons"]
            assert reasons == ("end_turn",)
            assert messages_of(finished[name], "output")[0]["finish_reason"] == "stop"

    async def test_the_span_of_a_run_has_its_prompt_and_its_answer(self, spans):
        agent = Traced(llm=ScriptedModel(call("add", a=1, b=2), "3", "4"), tools=[add])
        agent.trace_content = True
        for prompt, answer in (("1 + 2?", "3"), ("And more?", "4")):
            await agent.run(prompt)
            run = spans()["invoke_agent agent"]
            [prompted] = messages_of(run, "input")
            [answered] = messages_of(run, "output")
            assert prompted == {"role": "user", "parts": [{"type": "text", "content": prompt}]}
            assert answered["parts"] == [{"type": "text", "content": answer}]

    @pytest.mark.parametrize("content", [False, True])
    async def test_a_failed_span_has_a_description_if_content_is_enabled(self, spans, content):
        model = ScriptedModel(call("fail"), BadRequest("too long"))
        agent = Traced(llm=model, tools=[fail], trace_content=content)
        with pytest.raises(BadRequest):
            await agent.run("x")
        descriptions = {name: span.status.description for name, span in spans().items()}
        if content:
            assert descriptions.pop("execute_tool fail") == agent.messages[2].text
            assert set(descriptions.values()) == {"BadRequest: too long"}
        else:
            assert set(descriptions.values()) == {None}

    @pytest.mark.parametrize("bases", [(Tracing, Session, Agent), (Session, Tracing, Agent)])
    async def test_the_session_name_is_the_conversation_id_of_the_span(
        self, spans, tmp_path, bases
    ):
        agent = type("Both", bases, {})(
            llm=ScriptedModel("hi"), session="monday", session_dir=tmp_path
        )
        await agent.run("x")
        agent.close()
        assert spans()["invoke_agent agent"].attributes["gen_ai.conversation.id"] == "monday"

    async def test_without_a_session_the_span_belongs_to_no_conversation(self, spans):
        await Traced(llm=ScriptedModel("hi")).run("x")
        assert "gen_ai.conversation.id" not in spans()["invoke_agent agent"].attributes

    async def test_parallel_calls_and_agents_inside_tools_have_separate_parents(self, spans):
        both = asyncio.Barrier(2)

        @tool("Ask another agent")
        async def ask(who: str) -> str:
            await both.wait()
            return await Traced(llm=ScriptedModel("yes", model=who), agent_name=who).query("?")

        calls = [call("ask", who="ann"), call("ask", who="bob")]
        await Traced(llm=ScriptedModel(calls, "done"), tools=[ask]).run("x")
        finished = spans()
        assert parent_of(finished["chat ann"], finished) == "invoke_agent ann"
        assert parent_of(finished["chat bob"], finished) == "invoke_agent bob"
        inner = {finished[f"invoke_agent {who}"].parent.span_id for who in ("ann", "bob")}
        assert len(inner) == 2, "each agent is a child of its own call"
        assert len({span.context.trace_id for span in finished.values()}) == 1

    @pytest.mark.parametrize("content", [False, True])
    async def test_spans_contain_content_only_if_enabled(self, spans, content):
        llm = ScriptedModel(call("add", a=41, b=1), "secret answer")
        agent = Traced(llm=llm, tools=[add], trace_content=content)
        await agent.run("secret question")
        text = str([dict(span.attributes) for span in spans().values()])
        for word in ("secret question", "secret answer", "41", "42"):
            assert (word in text) is content, word
        assert ("42" in str(dict(spans()["execute_tool add"].attributes))) is content

    async def test_failures_mark_their_span_and_a_stop_does_not(self, spans):
        agent = Traced(llm=ScriptedModel(call("fail"), BadRequest("key sk-1")), tools=[fail])
        with pytest.raises(BadRequest):
            await agent.run("x")
        finished = spans()
        agent, chat, step = "invoke_agent agent", "chat scripted", "execute_tool fail"
        errors = {name: dict(s.attributes).get("error.type") for name, s in finished.items()}
        assert errors == {agent: "BadRequest", chat: "BadRequest", step: "tool_error"}
        assert "sk-1" not in str([s.to_json() for s in finished.values()])

        @tool("Stop")
        def stop() -> str:
            raise Stop("needs_approval")

        await Traced(llm=ScriptedModel(call("stop")), tools=[stop], agent_name="b").run("x")
        assert "error.type" not in spans()["execute_tool stop"].attributes
