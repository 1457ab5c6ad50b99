"""Task: let the run return a `Verdict(enough, left)`, which a program can use, instead of text."""

from pydantic import BaseModel

from agentloop import Agent, ScriptedModel, call, tool

PANTRY = {"flour": 900, "eggs": 12}


class Verdict(BaseModel):
    enough: bool
    left: int


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


SCRIPT = [
    call("stock", item="eggs"),
    "There are 12 eggs, and 20 pancakes take 10.",
    call("done", enough="I think so", left=2),
    call("done", enough=True, left=2),
]
agent = Agent(llm=ScriptedModel(*SCRIPT), tools=[stock], output_type=Verdict)

if __name__ == "__main__":
    result = agent.run_sync("Are there enough eggs for 20 pancakes?")
    print("the value:", repr(result.value))
    print("the text:", result.text)
    print("Notice: the first `done` had a text instead of a bool, and did not end the run.")
