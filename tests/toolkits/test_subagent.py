"""Sub-agents: a log of their own, counted as they work, told of, cancelled and limited."""

import asyncio

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Depends,
    Limits,
    Loop,
    ScriptedModel,
    TextDeltaEvent,
    ToolCallEvent,
    Usage,
    UsageEvent,
    current_agent,
    tool,
)
from agentloop.events import SubAgentEvent
from agentloop.messages import RunEnd, SideRequest
from agentloop.mixins.approval import Approval
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.subagent import (
    DEEPEST,
    SIDE_BY_SIDE,
    AgentDefinition,
    as_tool,
    discover_agents,
    task_tool,
)


class Limited(Limits, Agent):
    pass


@tool
def note() -> str:
    """Note something."""
    return "noted"


def used(reply, tokens=100):
    calls = () if isinstance(reply, str) else (reply,)
    return AssistantMessage(reply if not calls else "", calls, usage=Usage(tokens, 10))


def sub(*script, tools=(note,), cls=Agent, **settings):
    return cls(llm=ScriptedModel(*script, model="small"), tools=tools, **settings)


def boss_of(*tools, script=(), cls=Agent, **settings):
    script = script or (call(tools[0].name, prompt="go"), "done")
    return cls(llm=ScriptedModel(*script), tools=tools, **settings)


def results(agent):
    return [m.text for m in agent.messages if m.__class__.__name__ == "ToolMessage"]


async def test_a_sub_agent_has_a_log_of_its_own_and_each_request_counts_when_it_happens():
    seen = []

    @tool
    def look(agent: Loop = Depends(current_agent)) -> None:
        """Look at what was counted so far."""
        side = [r for r in boss.log if isinstance(r, SideRequest)]
        seen.append(([r.usage.total_tokens for r in side], side[-1].model, side[-1].extra))

    template = sub(used(call("look")), used(call("look")), used("found"), tools=[look])
    boss = boss_of(as_tool(template, "research", "Research"))
    assert await boss.query("x") == "done"
    assert seen == [([110] * n, "small", {"tool_calls": 1}) for n in (1, 2)]
    assert results(boss) == ["found"]
    assert template.log == []
    assert [m.text for m in template.llm.requests[0].messages] == ["go"]
    assert boss.usage.total_tokens == 330


@pytest.mark.parametrize(
    ("limit", "requests"), [({"max_requests": 3}, 2), ({"max_tokens": 230}, 3), ({}, 6)]
)
async def test_the_parents_limits_are_asked_before_each_request_of_a_sub_agent(limit, requests):
    template = sub(*[used(call("note"))] * 5, used("found"))
    boss = boss_of(as_tool(template, "research", "Research"), cls=Limited, **limit)
    result = await boss.run("x")
    assert result.stop_reason == next((f"limit:{n[4:]}" for n in limit), "completed")
    assert len(template.llm.requests) == requests


async def test_the_summaries_of_a_sub_agent_and_its_own_sub_agents_count_too():
    @tool
    def long() -> str:
        """Read something long."""
        return "word " * 2000

    inner, summarizer = sub(used("inner")), ScriptedModel(lambda m, t: used("SUMMARY"))
    script = [call("long"), used(call("long"), 3500), call("inner", prompt="go"), "outer"]
    outer = sub(
        *script,
        tools=[long, as_tool(inner, "inner", "Inner")],
        compaction=CompactionConfig(context_window=4000, keep_turns=1, model=summarizer),
    )
    boss = boss_of(as_tool(outer, "outer", "Outer"))
    assert await boss.query("x") == "done"
    assert summarizer.requests
    counted = [r for r in boss.log if isinstance(r, SideRequest)]
    assert len(counted) == 4 + 1 + len(summarizer.requests)
    assert boss.usage.total_tokens == 3510 + 110 * (1 + len(summarizer.requests))
    assert results(boss) == ["outer"]


async def test_events_reach_the_parents_reader_marked_with_whose_they_are():
    template = sub(used(call("note")), used("found it"))
    both = [call("research", prompt="a"), call("research", prompt="b")]
    template.llm = ScriptedModel(lambda m, t: used("found it" if m[1:] else call("note")))
    boss = boss_of(as_tool(template, "research", "Research"), script=[both, "done"])
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
async def test_an_agent_of_any_class_is_a_sub_agent_and_is_none_by_that(cls):
    template = sub(lambda m, t: used("found"), cls=cls)
    boss = boss_of(as_tool(template, "research", "Research"))
    await boss.query("x")
    assert await template.query("directly") == "found"
    assert (boss.usage.total_tokens, type(template)) == (110, cls)


async def test_a_cancel_reaches_down_and_the_call_says_so():
    started, ends = asyncio.Event(), []

    @tool
    async def wait(agent: Loop = Depends(current_agent)) -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(agent)

    inner = sub(call("wait"), tools=[wait])
    outer = sub(call("inner", prompt="go"), tools=[as_tool(inner, "inner", "Inner")])
    boss = boss_of(as_tool(outer, "outer", "Outer"))
    run = asyncio.create_task(boss.run("x"))
    await started.wait()
    boss.interrupt("enough")
    assert (await run).stop_reason == "interrupted"
    assert ends[0].log[-1].stop_reason == "cancelled"
    assert ends[0].parent.log[-1] == RunEnd("cancelled", at=ends[0].parent.log[-1].at)
    assert "Interrupted" in results(boss)[0]


async def test_a_few_run_at_a_time_and_nested_ones_never_wait_for_each_other():
    running, most, together = 0, 0, asyncio.Event()

    async def reply(messages, tools):
        nonlocal running, most
        if len(messages) == 1 and tools:
            return call("inner", prompt="go")
        if not tools:
            running += 1
            most = max(most, running)
            if running == SIDE_BY_SIDE:
                together.set()
            await together.wait()
            running -= 1
        return "ok"

    inner = sub(reply, tools=())
    outer = sub(reply, tools=[as_tool(inner, "inner", "Inner")])
    many = [call("outer", prompt=f"{n}") for n in range(3 * SIDE_BY_SIDE)]
    boss = boss_of(as_tool(outer, "outer", "Outer"), script=[many, "done"])
    assert await boss.query("x") == "done"
    assert most == SIDE_BY_SIDE
    assert results(boss) == ["ok"] * len(many)


def test_sub_agents_run_in_one_event_loop_after_another():
    template = sub(lambda m, t: "ok")
    many = [call("ask", prompt=f"{n}") for n in range(2 * SIDE_BY_SIDE)]
    boss = boss_of(as_tool(template, "ask", "Ask"), script=[many, "one", many, "two"])
    assert [boss.run_sync("x").text, boss.run_sync("y").text] == ["one", "two"]


async def test_depth_is_limited_and_the_model_reads_that():
    template = sub(lambda m, t: m[-1].text if m[1:] else call("ask", prompt="deeper"))
    template.tools = [as_tool(template, "ask", "Ask yourself")]
    assert "3 deep" in await template.query("go")
    assert len(template.llm.requests) == 2 * (DEEPEST + 1)


async def test_an_end_without_an_answer_is_an_error_that_the_model_reads():
    refused = sub(AssistantMessage("I cannot.", stop_reason="refused"))
    broken = sub(RuntimeError("no model here"))
    asking = sub(call("note"), cls=type("Asking", (Approval, Agent), {}))
    tools = [
        as_tool(each, name, name)
        for name, each in zip("abc", (refused, broken, asking), strict=True)
    ]
    boss = boss_of(*tools, script=[[call(name, prompt="x") for name in "abc"], "done"])
    await boss.query("x")
    assert results(boss) == [
        "a ended without an answer: refused. I cannot.",
        "RuntimeError: no model here",
        "c ended without an answer: needs_approval. ",
    ]


# ---- definitions


async def test_the_task_tool_starts_what_is_defined_by_name():
    small = ScriptedModel("read it", model="small")
    definitions = [
        AgentDefinition("reader", "Reads.", "You read.", [note], small),
        AgentDefinition("helper", "Helps.", "You help."),
    ]
    template = Agent(llm=ScriptedModel("helped"), tools=[], system_prompt="Unused.")
    tasks = [call("task", agent=name, prompt="go") for name in ("reader", "helper", "nobody")]
    boss = boss_of(task_tool(definitions, template), script=[tasks, "done"])
    await boss.query("x")
    read, helped, unknown = results(boss)
    assert (read, helped) == ("read it", "helped")
    assert "'reader' or 'helper'" in unknown
    [request], [other] = small.requests, template.llm.requests
    assert [m.text for m in request.messages] == ["You read.", "go"]
    assert [m.text for m in other.messages] == ["You help.", "go"]
    assert [[t.name for t in r.tools] for r in (request, other)] == [["note"], []]
    assert "- reader: Reads.\n- helper: Helps." in boss.tools[0].description


def test_definitions_come_from_markdown(tmp_path):
    (tmp_path / "a.md").write_text(
        "---\nname: reader\ndescription: >-\n  Reads: quickly,\n  and well.\n"
        "tools:\n  - note\nmodel: small\ncolor: blue\n---\n\nYou read.\n\n---\nAlways.\n"
    )
    (tmp_path / "b.md").write_text("---\nname: 'b'\ndescription: B\ntools: []\n---\nYou are B.")
    (tmp_path / "c.md").write_text("---\nname: c\ndescription: C\nmodel: inherit\n---\nYou are C.")
    small = ScriptedModel()
    assert discover_agents(tmp_path, [note], {"small": small}) == [
        AgentDefinition(
            "reader", "Reads: quickly, and well.", "You read.\n\n---\nAlways.", [note], small
        ),
        AgentDefinition("b", "B", "You are B.", []),
        AgentDefinition("c", "C", "You are C.", None),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("You read.", "name is missing: write 'name: ...'"),
        ("---\nname: a\n---\nx", "description is missing"),
        (
            "---\nname: a\ndescription: b\ntools: note, rm\n---\nx",
            "tools, model: There is no tool named 'rm'. There are: note",
        ),
        ("---\nname: a\ndescription: b\nmodel: big\n---\nx", "model: 'big'.*inherit"),
    ],
)
def test_a_broken_definition_is_refused_with_file_key_and_remedy(tmp_path, text, words):
    (tmp_path / "broken.md").write_text(text)
    with pytest.raises(ValueError, match=f"broken.md: .*{words}"):
        discover_agents(tmp_path, [note])
    with pytest.raises(FileNotFoundError):
        discover_agents(tmp_path / "nowhere")


async def test_hooks_of_the_parent_hear_when_a_sub_agent_starts_and_stops():
    class Hooked(Hooks, Agent):
        pass

    heard = []

    def hear(data):
        heard.append((data["hook_event_name"], data["agent_type"]))

    llm = ScriptedModel(call("ask", prompt="?"), "done")
    helper = as_tool(Agent(llm=ScriptedModel("yes")), "ask", "Asks")
    hooks = [Hook("SubagentStart", hear), Hook("SubagentStop", hear)]
    await Hooked(llm=llm, tools=[helper], hooks=hooks).run("x")
    assert heard == [("SubagentStart", "ask"), ("SubagentStop", "ask")]
