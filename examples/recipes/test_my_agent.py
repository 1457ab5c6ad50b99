"""Tests for an agent of your own: no network, no key, no waiting, the same result every time.

One wants them for what is yours: tools, prompts, mixins. The model is a script, and what it was
shown is what to assert on. `dependency_overrides` puts a double in a service's place, and with
`on_tool_error="raise"` a bug in a tool fails the test instead of being told to the model.
"""

from typing import Annotated, Any

import pytest

from agentloop import Agent, Depends, ScriptedModel, ToolError, assert_prefix_stable, tool
from agentloop.models.scripted import call


class Stock:
    def count(self, item: str) -> int | None:
        raise NotImplementedError("asks the warehouse over the network")


@tool("How many of an item there are")
def stock(item: str, service: Annotated[Stock, Depends(Stock)]) -> str:
    if (count := service.count(item)) is None:
        raise ToolError(f"There is no item {item!r}.")
    return f"{count} in stock"


class Clerk(Agent):  # up to here it would be in your program, and imported
    tools = (stock,)


class FakeStock(Stock):
    def count(self, item: str) -> int | None:
        return {"kettle": 3}.get(item)


def play(*script: Any, questions: int = 1) -> ScriptedModel:
    """The model after an agent has answered some questions."""
    llm = ScriptedModel(*script)
    agent = Clerk(llm=llm, dependency_overrides={Stock: FakeStock}, on_tool_error="raise")
    for number in range(questions):
        agent.run_sync(f"Question {number}")
    return llm


def test_the_model_reads_what_there_is_and_what_was_wrong() -> None:
    llm = play([call("stock", item="kettle"), call("stock", item="tea"), call("stock")], "Three.")
    kettles, tea, nothing = llm.requests[-1].messages[-3:]
    assert kettles.text == "3 in stock"
    assert tea.text == "There is no item 'tea'."
    assert nothing.text.startswith("item: ")


def test_each_request_begins_with_the_one_before_it() -> None:
    llm = play(call("stock", item="kettle"), "Three.", "Yes, three.", questions=2)
    assert_prefix_stable(llm.requests)


if __name__ == "__main__":
    raise SystemExit(pytest.main(["-q", __file__]))
