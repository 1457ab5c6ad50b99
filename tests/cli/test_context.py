"""context_info: what the context of an agent holds."""

from agentloop import Agent, Memory, ScriptedModel
from agentloop.cli.context import context_info
from agentloop.common.tokens import message_tokens, tool_tokens
from agentloop.models.scripted import call

from ..mixins import read


async def test_a_program_learns_what_the_context_holds_and_what_is_hidden(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    kind = type("Told", (Memory, Agent), {})
    settings = {"system_prompt": "Be good.", "memory_dir": tmp_path}
    reads = [call("read", n=n) for n in range(12)]
    llm = ScriptedModel(*reads, "It is all read.")
    agent = kind(llm=llm, tools=[read], context_budget=1_500, **settings)
    await agent.query("Read it.")
    request = agent.llm.requests[-1]
    agent.log.pop()  # the end of the run
    agent.log.pop()  # the answer
    info = await context_info(agent)
    hidden = info.pop("hidden")
    assert sum(info.values()) == message_tokens(request.messages) + tool_tokens(request.tools)
    assert hidden + info["results of read"] > 12 * 370
    assert {*info} == {
        *("system prompt", "tools", "memory", "user", "summary"),
        *("replies", "calls", "results of read"),
    }
    assert all(info[kind] for kind in info.keys() - {"replies"})
