"""Promise: whatever happens in a run, the next request is one that every provider accepts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    ChatOpenAI,
    ScriptedModel,
    SystemMessage,
    ToolCall,
    UserMessage,
    tool,
    validate,
)
from agentloop.models.openai import write_openai_messages

from ..doubles.openai_double import OpenAIDouble, calls
from ..doubles.wires import WIRES


@tool("Works")
async def works(n: int = 0) -> str:
    return f"{n}"


@tool("Fails", ephemeral=1)
async def fails() -> str:
    raise ValueError("\ud800 broken")


@tool("Odd")
def odd() -> dict:
    return {"nan": float("nan"), "half": "\ud83d"}


any_text = st.text(st.characters(exclude_categories=()), max_size=10)
call = st.builds(
    ToolCall,
    st.sampled_from(["", "a", "b", "\ud800"]),
    st.sampled_from(["works", "fails", "odd", "unknown"]),
    st.sampled_from(["", "{}", '{"n": 1}', '{"n": "x"}', "[]", '{"n":', "null"]),
)
reply = st.builds(
    AssistantMessage,
    any_text,
    st.lists(call, max_size=3).map(tuple),
    stop_reason=st.sampled_from([None, None, None, "length", "refused", "zzz", "pause"]),
)
step = reply | st.just(RuntimeError("down"))


@given(st.lists(step, max_size=8), st.lists(any_text.filter(str.strip), min_size=1, max_size=4))
async def test_any_conversation_stays_valid(script, prompts):
    llm = ScriptedModel(*script, *["done"] * 20)  # which refuses what a provider would refuse
    agent = Agent(llm=llm, tools=[works, fails, odd], system_prompt="Be good.", max_iterations=3)
    for prompt in prompts:
        try:
            await agent.run(prompt)
        except RuntimeError:
            pass
        assert validate([*agent.messages, UserMessage("next")]) == []
    for request in llm.requests:
        assert request.messages[0] == SystemMessage("Be good.")
        wire = json.dumps(write_openai_messages(request.messages, "system"), allow_nan=False)
        wire.encode()
        for message in json.loads(wire):
            for made in message.get("tool_calls", ()):
                assert isinstance(json.loads(made["function"]["arguments"]), dict)


async def test_over_real_http_too():
    bad = [("works", "[]"), ("unknown", ""), ("fails", "{}"), ("odd", "{}")]
    script = [calls(*bad), calls(*bad, *bad), "fine"]
    async with OpenAIDouble(script) as server:
        llm = ChatOpenAI("m", base_url=server.base_url, api_key="k")
        agent = Agent(llm=llm, tools=[works, fails, odd])
        assert await agent.query("go") == "fine"
        assert server.refusals == []
        assert len(server.requests) == 3


@pytest.mark.parametrize("prompt", ["\ud83d", "\ud83d\ude00", "tab\tnul\0"])
async def test_odd_text_goes_through(prompt):
    llm = ScriptedModel("ok")
    await Agent(llm=llm).query(prompt)
    llm.requests[0].messages[-1].text.encode()


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("first", [[], [UserMessage("")], [UserMessage(())]])
async def test_a_history_may_begin_with_a_call(wire, first):
    async with wire.double(["hello"]) as server:
        agent = Agent(llm=wire.model(server, max_retries=0), tools=[works])
        agent.load_history([*first, AssistantMessage(tool_calls=(ToolCall("a", "works"),))])
        assert await agent.query("hi") == "hello"
