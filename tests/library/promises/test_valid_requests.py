"""Promise 1: the next request is valid for every provider.

test_any_history.py tests random conversations.
"""

from typing import Annotated

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    ChatOpenAI,
    Depends,
    Loop,
    ToolCall,
    UserMessage,
    current_agent,
    tool,
)
from agentloop.mixins.approval import Approval, Rule
from tests.doubles.openai_double import OpenAIDouble, calls
from tests.doubles.wires import WIRES


@tool("Works")
async def works(n: int = 0) -> str:
    return f"{n}"


@tool("Fails", ephemeral=1)
async def fails() -> str:
    raise ValueError("\ud800 broken")


@tool("Odd")
def odd() -> dict:
    return {"nan": float("nan"), "half": "\ud83d"}


async def test_invalid_and_failing_calls_yield_valid_requests_over_http():
    bad = [("works", "[]"), ("unknown", ""), ("fails", "{}"), ("odd", "{}")]
    async with OpenAIDouble([calls(*bad), calls(*bad, *bad), "fine"]) as server:
        llm = ChatOpenAI("m", base_url=server.base_url, api_key="k")
        assert await Agent(llm=llm, tools=[works, fails, odd]).query("go") == "fine"
        assert server.refusals == []
        assert len(server.requests) == 3


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("first", [[], [UserMessage("")], [UserMessage(())]])
async def test_a_history_that_begins_with_a_call_is_valid(wire, first):
    async with wire.double(["hello"]) as server:
        agent = Agent(llm=wire.model(server, max_retries=0), tools=[works])
        agent.load_history([*first, AssistantMessage(tool_calls=(ToolCall("a", "works"),))])
        assert await agent.query("hi") == "hello"


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_nested_calls_are_in_no_request(wire):
    class Asking(Approval, Agent):
        approval_rules = (Rule("allow", "twice"),)

    @tool("Works twice", idempotent=True)
    async def twice(agent: Annotated[Loop, Depends(current_agent)]) -> str:
        return await agent.call(works, n=1) + await agent.call(works, n=2)

    async with wire.double([calls(("twice", {})), "fine"]) as server:
        agent = Asking(llm=wire.model(server, max_retries=0), tools=[works, twice])
        while (await agent.run(None if agent.log else "go")).stop_reason == "needs_approval":
            agent.decide(agent.pending[0].id, "allow")
        assert agent.messages[-1].text == "fine"
        assert [message.text for message in agent.messages[2:]] == ["12", "fine"]
        assert len(server.requests) == 2
