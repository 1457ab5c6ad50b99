"""Task: count an answer as right only if the model has called `stock` for it."""

import re

from agentloop import Agent, ScriptedModel, ToolMessage, call, tool

PANTRY = {"flour": 900, "eggs": 12}
CASES = {f"Are the eggs enough for {n} pancakes?": n / 2 <= 12 for n in range(4, 44, 4)}
SHORT = "Answer yes or no."
CAREFUL = "Look up the stock before you answer yes or no."


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


def model(messages, tools):
    """Simulate a model that calls `stock` only if it's told to, and guesses otherwise."""
    system, *_, last = messages
    (pancakes,) = re.findall(r"\d+", next(m.text for m in reversed(messages) if "?" in m.text))
    if "Look up" in system.text and last.text.endswith("?"):
        return call("stock", item="eggs")
    eggs = int(last.text) if last.text.isdigit() else 20
    return "Yes." if int(pancakes) / 2 <= eggs else "No."


def is_right(template, question, enough):
    agent = template.fork()
    answer = agent.run_sync(question).text
    looked = any(isinstance(m, ToolMessage) and not m.is_error for m in agent.messages)
    return looked and answer.startswith("Yes") == enough


if __name__ == "__main__":
    for prompt in (SHORT, CAREFUL):
        template = Agent(llm=ScriptedModel(model), tools=[stock], system_prompt=prompt)
        right = sum(is_right(template, *case) for case in CASES.items())
        print(f"{right} of {len(CASES)}: {prompt}")
    print("Notice: the earlier right answers were guesses.")
