"""StructuredOutput: the answer is a value of a type."""

import asyncio
import gc
import weakref
from dataclasses import dataclass, make_dataclass
from datetime import date
from typing import Literal

import pytest
from pydantic import BaseModel

from agentloop import Agent, AgentBusy, ScriptedModel, tool
from agentloop.errors import BadRequest
from agentloop.messages import UserMessage
from agentloop.mixins.done import done
from agentloop.mixins.structured_output import StructuredOutput
from agentloop.models.scripted import call
from agentloop.toolkits.todo import Todo
from agentloop.transcript import Log, RunEnd
from tests.core import test_loop
from tests.core.test_loop import add, shown


class Answer(BaseModel):
    city: str
    people: int = 0


@dataclass
class Point:
    x: int


@tool("Hand in", ends_run=True)
async def hand_in(work: str) -> str:
    return work


class TestStructuredOutput(test_loop.TestLoop):
    agent_class = StructuredOutput

    async def test_run_as_changes_neither_the_agent_nor_a_fork_created_by_a_tool(self):
        forks = []

        @tool("Test")
        def fork() -> None:
            forks.append(agent.fork())

        llm = ScriptedModel(call("fork"), call("done", result={"x": 1}))
        agent = StructuredOutput(llm=llm, tools=[fork])
        assert (await agent.run_as(Point, "x")).value == Point(1)
        assert agent.output_type is None
        assert forks[0].output_type is None

    @pytest.mark.parametrize("agent_class", [StructuredOutput, Agent])
    async def test_output_type_returns_a_validated_value(self, agent_class):
        bad, good = call("done", people="many"), call("done", city="Oslo", people="7")
        llm = ScriptedModel("Oslo!", bad, good)
        result = await agent_class(llm=llm, output_type=Answer).run("x")
        assert result.value == Answer(city="Oslo", people=7)
        assert (result.text, result.stop_reason) == ('{"city":"Oslo","people":7}', "done")
        assert "city" in shown(llm.requests[2])[-1]
        assert set(llm.requests[0].tools[0].parameters["properties"]) == {"city", "people"}

    @pytest.mark.parametrize(
        ("output_type", "reply", "value"),
        [
            (list[int], call("done", result=["1", 2]), [1, 2]),
            (Point, call("done", result={"x": 1}), Point(1)),
            (str, call("done", result="x"), "x"),
            (Answer | None, call("done", result=None), None),
            (Answer | None, "null", None),
            (Answer, '{"city": "Oslo"}', Answer(city="Oslo")),
            (Answer, 'Here it is:\n```json\n{"city": "Oslo"}\n```\n', Answer(city="Oslo")),
            (Answer, '{"city": "```json\\n{}```"}', Answer(city="```json\n{}```")),
            (list[int], "[1, 2]", [1, 2]),
            (list[int], '{"result": [1, 2]}', [1, 2]),
            (dict[str, int], '{"a": 1}', {"a": 1}),
            (int, "3", 3),
            (str, "Oslo", "Oslo"),
            (str, "Run this:\n```\nls\n```\nThen wait.", "Run this:\n```\nls\n```\nThen wait."),
            (date, "2026-05-17", date(2026, 5, 17)),
            (Literal["yes", "no"], "yes", "yes"),
        ],
    )
    async def test_output_type_accepts_any_type_and_json_text(self, output_type, reply, value):
        result = await StructuredOutput(llm=ScriptedModel(reply), output_type=output_type).run("x")
        assert (result.value, result.stop_reason in ("completed", "done")) == (value, True)
        assert output_type is not str or result.text == value, "without quotes"

    @pytest.mark.parametrize("tools", [[], [add]])
    @pytest.mark.parametrize("wrong", ["Oslo!", '{"town": "Oslo"}', "```json\n```", '["Oslo"]'])
    async def test_an_invalid_answer_is_rejected_at_most_three_times(self, tools, wrong):
        llm = ScriptedModel(*[wrong] * 4)
        result = await StructuredOutput(llm=llm, tools=tools, output_type=Answer).run("x")
        assert (result.text, result.value, result.stop_reason) == (wrong, None, "no_progress")
        llm = ScriptedModel(wrong, '{"city": "Oslo"}')
        result = await StructuredOutput(llm=llm, tools=tools, output_type=Answer).run("x")
        assert result.value == Answer(city="Oslo")
        assert "JSON" in shown(llm.requests[1])[-1]

    @pytest.mark.parametrize("wrong", ['{"x": "many"}', "[1]", "none", "null", ""])
    async def test_an_invalid_answer_is_no_model_of_defaults(self, wrong):
        class Sum(BaseModel):
            x: int = 0

        llm = ScriptedModel(wrong, '{"x": 3}')
        assert (await StructuredOutput(llm=llm, output_type=Sum).run("x")).value == Sum(x=3)

    @pytest.mark.parametrize(
        ("output_type", "value"),
        [
            (Answer, Answer(city="Oslo")),
            (str, "Oslo"),
            (date, date(2026, 5, 17)),
            (int | None, None),
        ],
    )
    async def test_a_run_that_was_killed_after_done_returns_the_value(self, output_type, value):
        script = {"city": "Oslo"} if output_type is Answer else {"result": value}
        agent = StructuredOutput(llm=ScriptedModel(call("done", **script)), output_type=output_type)
        before = await agent.run("x")
        agent.log = Log(record for record in agent.log if not isinstance(record, RunEnd))
        after = await agent.run()
        assert (after.text, after.value, after.stop_reason) == (before.text, value, "done")

    async def test_run_as_returns_a_value_of_the_type_for_one_run(self):
        script = call("done", city="Oslo"), "hello", "[1, 2]", "Oslo!"
        agent, _ = self.make(*script, tools=[add])
        result = await agent.run_as(Answer, "x")
        assert (result.value, result.stop_reason) == (Answer(city="Oslo"), "done")
        assert await agent.query("y") == "hello"
        assert (await agent.run_as(list[int], "z")).value == [1, 2]
        with pytest.raises(IndexError):  # end of the script
            await agent.run_as(Answer, "z")
        assert agent.output_type is None

    async def test_run_as_does_not_affect_a_running_run(self):
        async def reply(messages, tools):
            if agent.output_type is Answer:
                return '{"city": "Oslo"}'
            with pytest.raises(AgentBusy):
                await agent.run_as(Answer, "y")
            return "hello"

        agent, _ = self.make(reply)
        assert await agent.query("x") == "hello"

    async def test_a_custom_done_tool_must_return_a_value_of_the_output_type(self):
        llm = ScriptedModel(call("hand_in", work="x"), call("hand_in", work='{"city": "Oslo"}'))
        result = await StructuredOutput(llm=llm, tools=[hand_in], output_type=Answer).run("x")
        assert result.value == Answer(city="Oslo")

    async def test_native_json_output_is_requested_if_there_are_no_tools(self):
        requested = []

        class Native(ScriptedModel):
            def with_output(self, schema):
                requested.append({*schema["properties"]})
                return self

        for tools, offered in ([], []), ([add], ["add", "done"]):
            native = Native('{"city": "Oslo"}')
            result = await StructuredOutput(llm=native, tools=tools, output_type=Answer).run("x")
            assert result.value == Answer(city="Oslo")
            assert [t.name for t in native.requests[0].tools] == offered
        assert requested[0] == {"city", "people"}

    async def test_a_null_of_the_type_needs_no_call_of_done(self):
        class Native(ScriptedModel):
            def with_output(self, schema):
                return self

        llm = Native('{"result": null}')
        result = await Agent(llm=llm, output_type=int | None, require_done_tool=True).run("x")
        assert (result.value, result.stop_reason) == (None, "done")

    @pytest.mark.parametrize("choice", ["done", "required"])
    async def test_a_forced_call_of_done_is_offered_to_every_model(self, choice):
        class Native(ScriptedModel):
            def with_output(self, schema):
                raise AssertionError("a request without tools can't force a call")

        llm = Native(call("done", city="Oslo"))
        result = await Agent(llm=llm, output_type=Answer, tool_choice=choice).run("x")
        assert result.value == Answer(city="Oslo")
        assert llm.requests[0].tool_choice == choice

    @pytest.mark.parametrize("with_todo", [False, True])
    async def test_the_type_reaches_the_model_whatever_other_mixins_add(self, with_todo):
        class Native(ScriptedModel):
            def with_output(self, schema):
                return ScriptedModel('{"city": "Oslo"}')

        if with_todo:
            agent = type("Planner", (Todo, Agent), {})(
                llm=Native(call("done", city="Oslo")), output_type=Answer
            )
        else:
            agent = Agent(llm=Native(), output_type=Answer, require_done_tool=True)
        result = await agent.run("x")
        assert result.value == Answer(city="Oslo")
        offered = [tool.name for request in agent.llm.requests for tool in request.tools]
        assert offered == (["done", "todos"] if with_todo else [])

    async def test_without_native_support_for_the_type_the_done_tool_is_offered(self):
        class Unable(ScriptedModel):
            def with_output(self, schema):
                return None

        llm = Unable(call("done", city="Oslo"))
        result = await StructuredOutput(llm=llm, output_type=Answer).run("x")
        assert result.value == Answer(city="Oslo")
        assert [tool.name for tool in llm.requests[0].tools] == ["done"]

    async def test_if_the_provider_refuses_native_output_the_done_tool_is_offered(self):
        # DeepSeek: "This response_format type is unavailable now"
        class DeepSeek(ScriptedModel):
            def with_output(self, schema):
                return ScriptedModel(BadRequest("This response_format type is unavailable now"))

        llm = DeepSeek(call("done", city="Oslo"))
        result = await StructuredOutput(llm=llm, output_type=Answer).run("x")
        assert result.value == Answer(city="Oslo")
        assert [tool.name for tool in llm.requests[0].tools] == ["done"]
        assert [*llm.requests[0].messages] == [UserMessage("x")]

    def test_output_type_and_a_tool_named_done_are_mutually_exclusive(self):
        agent = StructuredOutput(llm=ScriptedModel("x"), tools=[done], output_type=Answer)
        with pytest.raises(ValueError, match="two tools named 'done'"):
            agent.run_sync("x")


class City(BaseModel):
    name: str


async def test_run_as_right_after_a_cancelled_run_waits_for_the_end_of_the_run():
    class Slow:
        model = "slow"

        async def ainvoke(self, *_, **__):
            await asyncio.Event().wait()

    agent = Agent(llm=Slow())
    task = asyncio.create_task(agent.run("x"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    agent.llm = ScriptedModel(call("done", name="Bern"))
    assert (await agent.run_as(City, "y")).value == City(name="Bern")


def test_a_server_may_make_an_output_type_for_each_request():
    kind = make_dataclass("Order", [("amount", int)])
    is_alive = weakref.ref(kind)
    Agent(llm=ScriptedModel(), output_type=kind)
    del kind
    for number in range(300):
        Agent(llm=ScriptedModel(), output_type=Literal[f"city {number}"])
    gc.collect()
    assert not is_alive()
