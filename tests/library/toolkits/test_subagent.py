"""Sub-agents: separate logs, usage counting, events, hooks, cancellation and limits."""

import asyncio
import gc

import pytest

from agentloop import (
    Agent,
    CompactionConfig,
    Depends,
    Limits,
    Loop,
    ScriptedModel,
    ServerError,
    Session,
    ToolError,
    read_log,
    tool,
)
from agentloop.common.records import from_dict
from agentloop.common.subagents import SubAgentRecord
from agentloop.depends import current_agent
from agentloop.events import SubAgentEvent, TextDeltaEvent, ToolCallEvent, UsageEvent
from agentloop.messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    Usage,
)
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.subagent import SubAgents, as_tool
from agentloop.transcript import RunEnd, RunStart, SideRequest


class Limited(Limits, Agent): ...


class Boss(SubAgents, Agent): ...


def deeper(messages, tools):
    """Ask another agent, or answer with its answer."""
    return call("ask", prompt="deeper") if len(messages) == 1 else messages[-1].text


DEPTHS = [
    (Agent, {}, 3),
    (Boss, {"max_sub_agent_depth": 1}, 1),
    (Boss, {"max_sub_agent_depth": 5}, 5),
]


note = tool("Note something", name="note")(lambda: "noted")


@tool
async def fail() -> str:
    """Fail."""
    raise ToolError("it is broken")


def with_usage(reply, tokens=100):
    """Return a reply (a text or a call) with a usage of `tokens` input and 10 output tokens."""
    if isinstance(reply, str):
        return AssistantMessage(reply, usage=Usage(tokens, 10))
    return AssistantMessage("", (reply,), usage=Usage(tokens, 10))


def results(agent):
    """Return the texts of all tool results."""
    return [message.text for message in agent.messages if isinstance(message, ToolMessage)]


def agent_calling(*tools, cls=Agent, **settings):
    """Return an agent that calls its first tool with the prompt "go" and then replies "done"."""
    llm = ScriptedModel(call(tools[0].name, prompt="go"), "done")
    return cls(llm=llm, tools=tools, **settings)


class TestSubAgents:
    async def test_a_sub_agent_has_its_own_log_and_each_request_is_counted_immediately(self):
        seen = []

        @tool("Look at what was counted so far")
        def look(agent: Loop = Depends(current_agent)) -> None:
            side = [r for r in boss.log if isinstance(r, SideRequest)]
            seen.append(([r.usage.total_tokens for r in side], side[-1].model, side[-1].tool_calls))

        script = with_usage(call("look")), with_usage(call("look")), with_usage("found")
        template = Agent(llm=ScriptedModel(*script, model="small"), tools=[look])
        boss = agent_calling(as_tool(template, "research", "Research"))
        assert await boss.query("x") == "done"
        assert seen == [([110] * n, "small", 1) for n in (1, 2)]
        assert results(boss) == ["found"]
        assert template.log == []
        assert [m.text for m in template.llm.requests[0].messages] == ["go"]
        assert boss.usage.total_tokens == 330

    async def test_limits_of_the_parent_are_checked_before_each_request_of_a_sub_agent(self):
        for limit, requests in (
            ({"max_requests": 3}, 2),
            ({"max_tokens": 230}, 3),
            ({"max_tool_calls": 4}, 4),
            ({}, 6),
        ):
            llm = ScriptedModel(*[with_usage(call("note"))] * 5, with_usage("found"))
            template = Agent(llm=llm, tools=[note])
            boss = agent_calling(as_tool(template, "research", "Research"), cls=Limited, **limit)
            result = await boss.run("x")
            assert result.stop_reason == next((f"limit:{n[4:]}" for n in limit), "completed")
            assert len(template.llm.requests) == requests

    async def test_summaries_and_nested_sub_agents_of_a_sub_agent_are_counted(self):
        long = tool("Read something long", name="long")(lambda: "word " * 2000)
        inner = Agent(llm=ScriptedModel(with_usage("inner")))
        summarizer = ScriptedModel(lambda messages, tools: with_usage("SUMMARY"))
        script = [call("long"), with_usage(call("long"), 3500), call("inner", prompt="go"), "outer"]
        config = CompactionConfig(context_window=4000, keep_turns=1, model=summarizer)
        tools = [long, as_tool(inner, "inner", "Inner")]
        outer = Agent(llm=ScriptedModel(*script), tools=tools, compaction=config)
        boss = agent_calling(as_tool(outer, "outer", "Outer"))
        assert await boss.query("x") == "done"
        assert summarizer.requests
        counted = [r for r in boss.log if isinstance(r, SideRequest)]
        assert len(counted) == 4 + 1 + len(summarizer.requests)
        assert boss.usage.total_tokens == 3510 + 110 * (1 + len(summarizer.requests))
        assert results(boss) == ["outer"]

    async def test_events_of_a_sub_agent_are_emitted_with_its_name_and_call_id(self):
        def reply(messages, tools):
            return with_usage(call("note") if len(messages) == 1 else "found it")

        template = Agent(llm=ScriptedModel(reply), tools=[note])
        both = [call("research", prompt="a"), call("research", prompt="b")]
        research = as_tool(template, "research", "Research")
        boss = Agent(llm=ScriptedModel(both, "done"), tools=[research])
        events = [event async for event in boss.query_stream("x")]
        marked = [event for event in events if isinstance(event, SubAgentEvent)]
        ids = [e.tool_call_id for e in events if isinstance(e, ToolCallEvent)]
        for call_id in ids:
            own = [e.event for e in marked if e.tool_call_id == call_id]
            assert [e.tool for e in own if isinstance(e, ToolCallEvent)] == ["note"]
            assert [e.content for e in own if isinstance(e, TextDeltaEvent)] == ["found ", "it"]
        assert {e.agent for e in marked} == {"research"}
        assert len({e.tool_call_id for e in marked}) == len(ids) == 2
        counted = sum((e.usage for e in events if isinstance(e, UsageEvent)), Usage())
        assert counted == boss.usage

    @pytest.mark.parametrize("cls", [Loop, Agent, type("Own", (Limits, Loop), {})])
    async def test_an_agent_of_any_class_works_as_a_sub_agent_and_remains_independent(self, cls):
        template = cls(llm=ScriptedModel(lambda messages, tools: with_usage("found")))
        boss = agent_calling(as_tool(template, "research", "Research"))
        await boss.query("x")
        assert await template.query("directly") == "found"
        assert (boss.usage.total_tokens, type(template)) == (110, cls)

    async def test_a_cancellation_reaches_nested_sub_agents_and_is_reported_in_the_result(self):
        started, ends = asyncio.Event(), []

        @tool("Wait for ever")
        async def wait(agent: Loop = Depends(current_agent)) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ends.append(agent)

        inner = Agent(llm=ScriptedModel(call("wait")), tools=[wait])
        outer = agent_calling(as_tool(inner, "inner", "Inner"))
        boss = agent_calling(as_tool(outer, "outer", "Outer"))
        run = asyncio.create_task(boss.run("x"))
        await started.wait()
        boss.interrupt("enough")
        assert (await run).stop_reason == "interrupted"
        assert ends[0].log[-1].stop_reason == "cancelled"
        assert ends[0].parent.log[-1].stop_reason == "cancelled"
        assert "Interrupted" in results(boss)[0]

    @pytest.mark.parametrize("settings", [{}, {"max_sub_agents": 2}])
    async def test_concurrent_sub_agents_are_limited_without_deadlocks_of_nested_ones(
        self, settings
    ):
        running, peak, together = 0, 0, asyncio.Event()
        at_once = settings.get("max_sub_agents", SubAgents.max_sub_agents)

        async def reply(messages, tools):
            nonlocal running, peak
            if len(messages) == 1 and tools:
                return call("inner", prompt="go")
            if not tools:
                running += 1
                peak = max(peak, running)
                if running == at_once:
                    together.set()
                await together.wait()
                running -= 1
            return "ok"

        inner = Agent(llm=ScriptedModel(reply))
        outer = Agent(llm=ScriptedModel(reply), tools=[as_tool(inner, "inner", "Inner")])
        many = [call("outer", prompt=f"{n}") for n in range(3 * at_once)]
        tools = [as_tool(outer, "outer", "Outer")]
        cls = Boss if settings else Agent
        boss = cls(llm=ScriptedModel(many, "done"), tools=tools, **settings)
        assert await boss.query("x") == "done"
        assert peak == at_once
        assert results(boss) == ["ok"] * len(many)

    def test_sub_agents_work_in_successive_event_loops(self):
        template = Agent(llm=ScriptedModel(lambda messages, tools: "ok"))
        many = [call("ask", prompt=f"{n}") for n in range(2 * SubAgents.max_sub_agents)]
        llm = ScriptedModel(many, "one", many, "two")
        boss = Agent(llm=llm, tools=[as_tool(template, "ask", "Ask")])
        assert [boss.run_sync("x").text, boss.run_sync("y").text] == ["one", "two"]

    def test_a_sub_agent_continues_after_its_event_loop_was_closed(self):
        class Slow:
            model = "slow"

            async def ainvoke(self, *_, **__):
                await asyncio.Event().wait()

        template = Agent(llm=Slow())
        llm = ScriptedModel(call("ask", prompt="x"), "done")
        boss = Boss(llm=llm, tools=[as_tool(template, "ask", "Ask")], max_sub_agents=1)
        loop = asyncio.new_event_loop()
        task = loop.create_task(boss.run("x"))
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
        template.llm = ScriptedModel("ok")
        result = asyncio.run(asyncio.wait_for(boss.run(), 5))
        assert (result.text, results(boss)) == ("done", ["ok"])
        before = [*boss.log]
        del task
        gc.collect()
        assert boss.log == before, "the dropped sub-agent records nothing more"

    @pytest.mark.parametrize(("cls", "settings", "depth"), DEPTHS)
    async def test_the_nesting_depth_is_limited_and_the_limit_is_returned_to_the_model(
        self, cls, settings, depth
    ):
        template = cls(llm=ScriptedModel(deeper), **settings)
        template.tools = [as_tool(template, "ask", "Ask yourself")]
        assert f"{depth} levels" in await template.query("go")
        assert len(template.llm.requests) == 2 * (depth + 1)

    @pytest.mark.parametrize(("cls", "settings", "depth"), DEPTHS)
    async def test_the_depth_limit_of_the_first_agent_applies_to_all_nested_agents(
        self, cls, settings, depth
    ):
        below = Boss(llm=ScriptedModel(deeper), max_sub_agent_depth=2)
        below.tools = [as_tool(below, "ask", "Ask yourself")]
        first = cls(llm=ScriptedModel(deeper), tools=below.tools, **settings)
        assert f"{depth} levels" in await first.query("go")

    async def test_an_end_without_an_answer_is_an_error_returned_to_the_model(self):
        agents = {
            "a": Agent(llm=ScriptedModel(AssistantMessage("I cannot.", stop_reason="refused"))),
            "b": Agent(llm=ScriptedModel(RuntimeError("no model here"))),
        }
        tools = [as_tool(agent, name, name) for name, agent in agents.items()]
        both = [call(name, prompt="x") for name in agents]
        boss = Agent(llm=ScriptedModel(both, "done"), tools=tools)
        await boss.query("x")
        assert results(boss) == [
            "a ended without an answer: refused. I cannot.",
            "RuntimeError: no model here",
        ]

    async def test_a_session_contains_the_records_of_nested_sub_agents(self, tmp_path):
        class SessionAgent(Session, Agent): ...

        deep = Agent(llm=ScriptedModel(call("fail"), "no"), tools=[fail])
        template = agent_calling(as_tool(deep, "deep", "Deep"))
        boss = agent_calling(
            as_tool(template, "ask", "Ask"), cls=SessionAgent, session="boss", session_dir=tmp_path
        )
        await boss.query("x")
        boss.close()
        log = read_log(tmp_path / "boss.jsonl")
        inside = [record for record in log if isinstance(record, SubAgentRecord)]
        [call_id] = {record.call_id for record in inside}
        assert call_id == boss.messages[1].tool_calls[0].id
        assert {record.agent for record in inside} == {"ask"}
        records = [from_dict(record.record) for record in inside]
        prompt, asks, result, answer = [r for r in records if isinstance(r, Message)]
        assert (prompt.text, result.text, answer.text) == ("go", "no", "done")
        assert [type(records[0]), type(records[-1])] == [RunStart, RunEnd]
        deeper = [r for r in records if isinstance(r, SubAgentRecord)]
        assert {record.call_id for record in deeper} == {asks.tool_calls[0].id}
        [failed] = [from_dict(r.record) for r in deeper if r.record.get("is_error")]
        assert failed.text == "it is broken"
        assert [m.text for m in boss.messages] == ["x", "", "done", "done"]

    async def test_hooks_of_the_parent_run_when_a_sub_agent_starts_and_stops(self):
        calls = []

        def record(data):
            calls.append((data["hook_event_name"], data["agent_type"]))

        class Hooked(Hooks, Agent): ...

        hooks = [Hook("SubagentStart", record), Hook("SubagentStop", record)]
        helper = as_tool(Agent(llm=ScriptedModel("yes")), "ask", "Asks")
        await agent_calling(helper, cls=Hooked, hooks=hooks).run("x")
        assert calls == [("SubagentStart", "ask"), ("SubagentStop", "ask")]

    async def test_the_stop_hook_of_a_sub_agent_runs_even_if_its_model_fails(self):
        class Hooked(Hooks, Agent): ...

        calls = []
        hook = Hook("SubagentStop", lambda data: calls.append(data["agent_type"]))
        below = Agent(llm=ScriptedModel(ServerError("down")))
        llm = ScriptedModel(call("ask", prompt="go"), "ok")
        await Hooked(llm=llm, tools=[as_tool(below, "ask", "Ask")], hooks=[hook]).query("x")
        assert calls == ["ask"]
