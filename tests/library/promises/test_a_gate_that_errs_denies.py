"""Promise 4: if a gate fails, the call is denied."""

import asyncio
import subprocess
import sys

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    ScriptedModel,
    Session,
    Stop,
    ToolCall,
    ToolError,
    UserMessage,
    tool,
)
from agentloop.common.gate import Gate
from agentloop.messages import Unknown
from agentloop.mixins.approval import Approval
from agentloop.mixins.hooks import Hooks
from agentloop.models.scripted import call
from tests.helpers import record_all


@pytest.mark.parametrize("error", [RuntimeError, ToolError, KeyError, TimeoutError])
@pytest.mark.parametrize("seam", ["call_tool", "call_tools"])
async def test_a_call_does_not_run_if_a_mixin_raises_before_the_call(seam, error):
    async def gate(self, calls):
        raise error("the gate is broken")

    ran = []
    act = tool("Act", name="act")(lambda: ran.append(1))
    agent = type("Gated", (Loop,), {seam: gate})(llm=ScriptedModel(call("act"), "ok"), tools=[act])
    with pytest.raises(error):
        await agent.run("x")
    assert ran == []
    assert len(agent.messages) == 3


@pytest.mark.parametrize("error", [RuntimeError, ToolError, TimeoutError, asyncio.CancelledError])
async def test_a_gate_that_raises_denies_the_call_and_the_run_continues(error):
    class Broken(Gate):
        async def judge(self, judgment):
            judgment = await super().judge(judgment)
            if "7" in judgment.call.arguments:
                raise error("the gate is broken")
            return judgment

    ran = []

    @tool("Act")
    def act(n: int) -> None:
        ran.append(n)

    script = [call("act", n=1), call("act", n=7)], "ok"
    agent = Broken(llm=ScriptedModel(*script), tools=[act])
    assert (await agent.run("x")).text == "ok"
    assert ran == [1]
    assert agent.messages[3].text.startswith("Denied")


async def test_a_call_prevented_by_a_stop_stays_open_and_runs_once_permitted():
    class Closed(Loop):
        is_open: bool = False

        async def call_tool(self, call):
            if not self.is_open:
                raise Stop("limit:calls")
            return await super().call_tool(call)

    ran = []
    act = tool("Act", name="act")(lambda: ran.append(1))
    agent = Closed(llm=ScriptedModel(call("act"), "ok"), tools=[act])
    result = await agent.run("x")
    assert (result.stop_reason, ran) == ("limit:calls", [])
    assert [state.call.name for state in agent.conversation.open_calls] == ["act"]
    assert agent.messages[-1].text.startswith("Not run")
    agent.is_open = True
    assert (await agent.run()).text == "ok"
    assert ran == [1]


@pytest.mark.parametrize("mixins", [(), (Hooks,)])
async def test_a_call_that_awaits_approval_runs_only_after_an_approval(mixins):
    class Asking(Approval, Agent): ...

    ran = []
    act = tool("Act", name="act")(lambda: ran.append(1))
    asking = Asking(llm=ScriptedModel(call("act"), "ok"), tools=[act])
    assert (await asking.run("x")).stop_reason == "needs_approval"
    without_approval = type("WithoutApproval", (*mixins, Agent), {})(llm=asking.llm, tools=[act])
    record_all(without_approval, asking.log)
    result = await without_approval.run()
    assert (result.stop_reason, ran) == ("needs_approval", [])
    assert [pending.name for pending in result.pending] == ["act"]
    again = Asking(llm=asking.llm, tools=[act], approval_mode="auto")
    record_all(again, without_approval.log)
    assert (await again.run()).text == "ok"
    assert ran == [1]


WITHOUT_APPROVAL = """
import sys
from agentloop import Agent, ScriptedModel, Session, tool

@tool("Act", name="act")
def act() -> None:
    print("ran")

class Saved(Session, Agent): ...

with Saved(llm=ScriptedModel("ok"), tools=[act], session="s", session_dir=sys.argv[1]) as agent:
    print(agent.run_sync().stop_reason, [call.name for call in agent.pending])
"""


def test_a_program_that_knows_no_approvals_runs_no_call_that_awaits_one(tmp_path):
    class Asking(Approval, Session, Agent): ...

    act = tool("Act", name="act")(lambda: None)
    settings = {"session": "s", "session_dir": tmp_path}
    with Asking(llm=ScriptedModel(call("act")), tools=[act], **settings) as asking:
        assert asking.run_sync("x").stop_reason == "needs_approval"
    command = [sys.executable, "-c", WITHOUT_APPROVAL, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "needs_approval ['act']\n"


async def test_a_call_with_an_entry_of_an_unknown_type_does_not_start():
    ran = []
    act = tool("Act", name="act")(lambda: ran.append(1))
    agent = Agent(llm=ScriptedModel("ok"), tools=[act])
    asks = Unknown({"type": "ask_the_board", "call_id": "1"})
    record_all(
        agent, [UserMessage("x"), AssistantMessage(tool_calls=(ToolCall("1", "act"),)), asks]
    )
    result = await agent.run()
    assert (result.stop_reason, ran) == ("needs_answer", [])
    agent.answer("1", "The board has acted.")
    assert (await agent.run()).text == "ok"
