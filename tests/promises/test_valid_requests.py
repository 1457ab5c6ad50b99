"""Promise: whatever happens in a run, the next request is one that every provider accepts.

Any conversation at all, with any script of a model, is the matter of test_any_history.py.
"""

import pytest

from agentloop import Agent, AssistantMessage, ChatOpenAI, ToolCall, UserMessage, tool

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


async def test_over_real_http():
    bad = [("works", "[]"), ("unknown", ""), ("fails", "{}"), ("odd", "{}")]
    async with OpenAIDouble([calls(*bad), calls(*bad, *bad), "fine"]) as server:
        llm = ChatOpenAI("m", base_url=server.base_url, api_key="k")
        assert await Agent(llm=llm, tools=[works, fails, odd]).query("go") == "fine"
        assert server.refusals == []
        assert len(server.requests) == 3


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("first", [[], [UserMessage("")], [UserMessage(())]])
async def test_a_history_may_begin_with_a_call(wire, first):
    async with wire.double(["hello"]) as server:
        agent = Agent(llm=wire.model(server, max_retries=0), tools=[works])
        agent.load_history([*first, AssistantMessage(tool_calls=(ToolCall("a", "works"),))])
        assert await agent.query("hi") == "hello"
