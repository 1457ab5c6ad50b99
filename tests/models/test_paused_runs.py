"""A run whose provider pauses a turn goes on by itself."""

import pytest

from agentloop import Agent, ChatAnthropic
from tests.doubles.anthropic_double import AnthropicDouble, Reply

WEB = {"type": "web_search_20250305", "name": "web_search"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}


@pytest.mark.parametrize("listeners", [[], [lambda event: None]], ids=["whole", "streamed"])
async def test_a_run_goes_on_from_a_paused_turn(listeners):
    paused = Reply(blocks=[SEARCH], finish="pause_turn")
    async with AnthropicDouble(
        [paused, Reply(blocks=[FOUND, {"type": "text", "text": "so"}]), "bye"]
    ) as server:
        llm = ChatAnthropic(
            "claude", api_key="k", base_url=server.base_url, provider_tools=[WEB], max_retries=0
        )
        agent = Agent(llm=llm, listeners=listeners)
        assert await agent.query("Look it up.") == "so"
        assert await agent.query("And now?") == "bye"
    assert [request["messages"][-1]["role"] for request in server.requests] == [
        *("user", "assistant", "user")
    ]
