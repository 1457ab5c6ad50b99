"""Tests for your own agent: fast and deterministic, without a network or an API key.

Use this for tests of your tools, prompts and mixins. The model is a script; assert on what it got.
`dependency_overrides` replaces a service with a double. With `on_tool_error="raise"`, a bug in
a tool fails the test, and doesn't become an error result.
"""

from typing import Annotated, Any

import pytest

from agentloop import Agent, Depends, ScriptedModel, ToolError, assert_prefix_stable, call, tool


class Stock:
    def count(self, item: str) -> int | None:
        raise NotImplementedError("requests the number from the warehouse")


@tool("Return the number of items in stock")
def stock(item: str, service: Annotated[Stock, Depends(Stock)]) -> str:
    if (count := service.count(item)) is None:
        raise ToolError(f"Unknown item {item!r}.")
    return f"{count} in stock"


class Clerk(Agent):  # the code above belongs to your program: import it
    tools = (stock,)


class FakeStock(Stock):
    def count(self, item: str) -> int | None:
        return {"kettle": 3}.get(item)


def play(*script: Any, questions: int = 1) -> ScriptedModel:
    """Let an agent answer questions. Returns the scripted model, with its requests."""
    llm = ScriptedModel(*script)
    agent = Clerk(llm=llm, dependency_overrides={Stock: FakeStock}, on_tool_error="raise")
    for number in range(questions):
        agent.run_sync(f"Question {number}")
    return llm


def test_the_model_receives_results_and_errors() -> None:
    llm = play([call("stock", item="kettle"), call("stock", item="tea"), call("stock")], "Three.")
    kettles, tea, nothing = llm.requests[-1].messages[-3:]
    assert kettles.text == "3 in stock"
    assert tea.text == "Unknown item 'tea'."
    assert nothing.text.startswith("item: ")


def test_every_request_starts_with_the_previous_request() -> None:
    llm = play(call("stock", item="kettle"), "Three.", "Yes, three.", questions=2)
    assert_prefix_stable(llm.requests)


if __name__ == "__main__":
    raise SystemExit(pytest.main(["-q", __file__]))
