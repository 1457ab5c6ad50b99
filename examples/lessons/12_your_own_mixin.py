"""Problem: the loop should do something of your own, such as refuse certain calls.

A mixin is a subclass of `Loop` that overrides one of the seven seams and calls `super()`. Calls
pass through the bases of a class from left to right: `Guard` below gets a call before the loop
does, and a call that it refuses doesn't run.

A setting is an annotated attribute. For a test, you need a script and the messages of the requests.

Task: write `Checked`, a mixin over `finish` that refuses a wrong answer, and test it. For "How many
eggs are there?" it accepts `12`, but neither `A dozen.` nor `Twelve.`. Hint: `nudge(self, text)`.
"""

from collections.abc import Callable

from agentloop import Agent, Loop, ScriptedModel, ToolMessage, call, tool

PANTRY = {"flour": 900, "eggs": 12}


@tool
def take(item: str, amount: int) -> str:
    """Take some of an item out of the pantry."""
    PANTRY[item] -= amount
    return f"{PANTRY[item]} {item} are left"


class Guard(Loop):
    """Refuses calls, and returns the reason to the model.

    guard_rule: returns the reason to refuse a tool's name and arguments, or "" to allow the call.
    """

    guard_rule: Callable[[str, dict], str] = lambda name, arguments: ""

    async def call_tool(self, call):
        if reason := self.guard_rule(call.name, call.parsed or {}):
            return ToolMessage(call.id, call.name, f"Refused: {reason}", is_error=True)
        return await super().call_tool(call)


class Cook(Guard, Agent):
    pass


def leave_some(name, arguments):
    too_much = name == "take" and arguments["amount"] > PANTRY[arguments["item"]] // 2
    return "take half of what there is at most." if too_much else ""


def test_a_refused_call_does_not_run_and_the_reason_is_returned():
    model = ScriptedModel(call("take", item="eggs", amount=10), "Not allowed.")
    Cook(llm=model, tools=[take], guard_rule=leave_some).run_sync("Take 10 eggs.")
    assert PANTRY["eggs"] == 12
    assert model.requests[1].messages[-1].text == "Refused: take half of what there is at most."


if __name__ == "__main__":
    test_a_refused_call_does_not_run_and_the_reason_is_returned()
    print("The test passed.")
    calls = [call("take", item="eggs", amount=amount) for amount in (10, 6, 6)]
    agent = Cook(llm=ScriptedModel(*calls, "I have 6."), tools=[take], guard_rule=leave_some)
    print(agent.run_sync("Take as many eggs as you can."))
    for message in agent.messages:
        if isinstance(message, ToolMessage):
            print("the model receives:", message.text)
    print("Notice: a call passes through", " -> ".join(base.__name__ for base in Cook.__mro__[:6]))
