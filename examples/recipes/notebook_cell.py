# %% [markdown]
"""
# An agent in a notebook

One wants it to try an agent out by hand. These are a notebook's cells in the percent format, which
VS Code, PyCharm and Jupytext open as one. A notebook runs an event loop already, so its cells may
`await` by themselves; a plain `python notebook_cell.py` may not.
"""

# %% An agent, as anywhere else
# ruff: noqa: F704
from agentloop import Agent, ScriptedModel, TextDeltaEvent, ToolCallEvent, ToolResultEvent, tool
from agentloop.models.scripted import call


@tool("Add numbers")
def add(numbers: list[float]) -> float:
    return sum(numbers)


llm = ScriptedModel(call("add", numbers=[1, 2, 3.5]), "6.5 in all.", "13 then.", "3.25 then.")
agent = Agent(llm=llm, tools=[add])

# %% Ask, and watch
async for event in agent.query_stream("What is 1 + 2 + 3.5?"):
    match event:
        case ToolCallEvent(tool=name, args=args):
            print(f"> {name} {args}")
        case ToolResultEvent(result=result):
            print(f"  {result}")
        case TextDeltaEvent(content=text):
            print(text, end="", flush=True)

# %% Ask further: the agent goes on with the same conversation
place = len(agent.log)
print("\n" + await agent.query("And twice that?"))

# %% Ask something else instead: a fork goes on from that place, and the first stays as it is
other = agent.fork(at=place)
print(await other.query("And half of that?"))

# %% What is for scripts says what to do here
try:
    agent.run_sync("And half of that?")
except RuntimeError as error:
    print(error)
