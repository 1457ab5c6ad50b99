"""Log: a run that one can read along."""

from agentloop import Agent, AssistantMessage, ScriptedModel, Usage
from agentloop.mixins.log import Log
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import add


class Logged(Log, Agent): ...


class TestLog(test_loop.TestLoop):
    agent_class = Log

    async def test_a_run_is_printed_line_by_line(self, capsys):
        answer = AssistantMessage("It is\n3.", usage=Usage(1200, 5, 1000))
        await Logged(llm=ScriptedModel(call("add", a=1, b=2), answer), tools=[add]).run("1 + 2?")
        assert capsys.readouterr().out.splitlines() == [
            "user: 1 + 2?",
            'call: add {"a":1,"b":2}',
            "result: add: 3",
            "scripted: It is 3.",
            "tokens: 1,200 in (1,000 cached), 5 out",
            "end: completed",
        ]

    async def test_a_function_that_fails_does_not_disturb_the_run(self, caplog):
        agent = Logged(llm=ScriptedModel("fine"), log_to=lambda line: 1 / 0)
        assert await agent.query("x") == "fine"
        assert "log_to failed" in caplog.text
