"""Promise: when what decides over a call fails, the call does not run."""

import pytest

from agentloop import Loop, ScriptedModel, Stop, ToolError, tool
from agentloop.models.scripted import call


@pytest.mark.parametrize("error", [RuntimeError, ToolError, KeyError, TimeoutError])
@pytest.mark.parametrize("seam", ["call_tool", "call_tools"])
async def test_a_call_does_not_run_when_a_mixin_fails_before_it(seam, error):
    ran = []

    @tool("Act")
    async def act() -> None:
        ran.append(1)

    async def gate(self, calls):
        raise error("the gate is broken")

    agent = type("Gated", (Loop,), {seam: gate})(llm=ScriptedModel(call("act"), "ok"), tools=[act])
    with pytest.raises(error):
        await agent.run("x")
    assert ran == []
    assert len(agent.messages) == 3


async def test_a_call_that_a_stop_prevented_stays_open():
    class Limited(Loop):
        async def call_tool(self, call):
            raise Stop("limit:calls")

    agent = Limited(llm=ScriptedModel(call("act")), tools=[])
    result = await agent.run("x")
    assert result.stop_reason == "limit:calls"
    assert [c.name for c in result.pending] == ["act"]
    assert agent.messages[-1].text.startswith("Not run")
