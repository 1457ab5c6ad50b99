"""Spans in the dashboard of another project, Arize Phoenix.

Phoenix has many dependencies: run `pip install arize-phoenix` in a separate virtual environment and
add its bin to the PATH. Phoenix converts spans to its own names for messages, tools and tokens, and
omits attributes that violate the conventions, so its output shows which attributes it recognized.
"""

import os
import shutil
import socket
import subprocess
import time

import httpx
import pytest

from agentloop import Agent, AssistantMessage, BadRequest, ScriptedModel, Usage, call, tool
from agentloop.mixins.tracing import Tracing

PHOENIX = shutil.which("phoenix")
exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
pytestmark = pytest.mark.skipif(PHOENIX is None, reason="phoenix is not on the PATH")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Start the server, and send it all later spans; yield its address."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    port = free_port()
    settings = {
        "PHOENIX_WORKING_DIR": str(tmp_path_factory.mktemp("phoenix")),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    address = f"http://127.0.0.1:{port}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([PHOENIX, "serve"], env=os.environ | settings, **quiet) as server:
        try:
            while not is_up(address):
                assert server.poll() is None, "phoenix did not start"
                time.sleep(0.5)
            sender = exporter.OTLPSpanExporter(f"{address}/v1/traces")
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(sender))
            trace.set_tracer_provider(provider)
            yield address
            provider.shutdown()  # otherwise, spans of other tests would wait for this server
        finally:
            server.kill()


def is_up(url):
    try:
        return httpx.get(f"{url}/healthz").is_success
    except httpx.TransportError:
        return False


def spans_of(url, agent_name, count):
    """Return the spans of the newest run by name; the last span of a name."""
    while True:  # spans are stored with a delay: the timeout of the test limits the wait
        answer = httpx.get(f"{url}/v1/projects/default/spans", params={"limit": 100})
        spans = answer.json()["data"] if answer.is_success else []
        roots = [each for each in spans if each["name"] == f"invoke_agent {agent_name}"]
        traces = {each["context"]["trace_id"] for each in roots}
        found = [each for each in spans if each["context"]["trace_id"] in traces]
        if len(found) == count:
            return {each["name"]: each for each in sorted(found, key=lambda s: s["start_time"])}
        time.sleep(0.2)


@tool("Add two numbers")
def add(a: int, b: int) -> int:
    return a + b


class Traced(Tracing, Agent):
    trace_content = True


def test_phoenix_shows_messages_tools_calls_results_and_tokens(url):
    asks = call("add", a=1, b=2)
    replies = [
        AssistantMessage("I add.", (asks,), usage=Usage(10, 5, 4), stop_reason="tool_calls"),
        AssistantMessage("It is 3.", usage=Usage(20, 2), stop_reason="end"),
    ]
    Traced(
        llm=ScriptedModel(*replies), tools=[add], system_prompt="Be brief.", agent_name="adder"
    ).run_sync("1 + 2?")
    spans = spans_of(url, "adder", 4)
    kinds = [spans[name]["span_kind"] for name in sorted(spans)]
    assert kinds == ["LLM", "TOOL", "AGENT"]
    chat = spans["chat scripted"]["attributes"]
    asked = "llm.input_messages"
    texts = [chat[f"{asked}.{n}.message.content"] for n in range(4)]
    assert texts == ["Be brief.", "1 + 2?", "I add.", "3"]
    roles = [chat[f"{asked}.{n}.message.role"] for n in range(4)]
    assert roles == ["system", "user", "assistant", "tool"]
    assert chat[f"{asked}.2.message.tool_calls.0.tool_call.function.name"] == "add"
    assert chat["llm.output_messages.0.message.content"] == "It is 3."
    assert chat["llm.finish_reason"] == "stop"
    assert '"name": "add"' in chat["llm.tools.0.tool.json_schema"]
    assert chat["llm.token_count.prompt"] == 20
    run = spans["invoke_agent adder"]["attributes"]
    assert (run["llm.token_count.prompt"], run["llm.token_count.completion"]) == (30, 7)
    assert run["llm.model_name"] == "scripted"
    assert (run["input.value"], run["output.value"]) == ("1 + 2?", "It is 3.")
    ran = spans["execute_tool add"]["attributes"]
    assert (ran["tool.parameters.a"], ran["output.value"]) == (1, "3")


@pytest.mark.parametrize("content", [True, False])
def test_phoenix_shows_failed_runs_and_the_error_if_content_is_allowed(url, content):
    name = f"failing {content}"
    model = ScriptedModel(BadRequest("too long"))
    agent = Traced(llm=model, agent_name=name, trace_content=content)
    with pytest.raises(BadRequest):
        agent.run_sync("x")
    spans = spans_of(url, name, 2)
    assert {each["status_code"] for each in spans.values()} == {"ERROR"}
    why = {each["status_message"] for each in spans.values()}
    assert why == {"BadRequest: too long" if content else ""}
