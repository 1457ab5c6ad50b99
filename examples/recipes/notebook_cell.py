# %% [markdown]
"""
# An agent in a notebook

Use a notebook to experiment with an agent interactively. This file contains notebook cells in the
percent format of VS Code, PyCharm and Jupytext. Notebooks run an event loop already, so cells may
use `await` at the top level; a plain `python notebook_cell.py` may not.
"""

# %% An agent, defined as in a program
# ruff: noqa: F704
from agentloop import (
    Agent,
    ScriptedModel,
    TextDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    call,
    tool,
)


@tool("Add numbers")
def add(numbers: list[float]) -> float:
    return sum(numbers)


llm = ScriptedModel(call("add", numbers=[1, 2, 3.5]), "6.5 in total.", "That is 13.", "3.25.")
agent = Agent(llm=llm, tools=[add])

# %% A question, with live events
async for event in agent.query_stream("What is 1 + 2 + 3.5?"):
    match event:
        case ToolCallEvent(tool=name, args=args):
            print(f"> {name} {args}")
        case ToolResultEvent(result=result):
            print(f"  {result}")
        case TextDeltaEvent(content=text):
            print(text, end="", flush=True)

# %% A second question continues the conversation
place = len(agent.log)
print("\n" + await agent.query("And twice that?"))

# %% A fork continues from an earlier position; the original conversation remains unchanged
other = agent.fork(at=place)
print(await other.query("And half of that?"))

# %% Methods for scripts raise an error that names the alternative
try:
    agent.run_sync("And half of that?")
except RuntimeError as error:
    print(error)
