"""An agent that works off a script, with its tools, and the session that it leaves."""

from agentloop import Agent, Inbox, ScriptedModel, Session, ToolError, tool


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


def wrong(name="add"):
    """A tool that adds one too many."""

    @tool(name=name, description="Add.")
    async def other(a: int, b: int) -> int:
        return a + b + 1

    return other


class Kept(Inbox, Session, Agent):
    pass


async def session(folder, *script, prompts=("go",), tools=(add,), **settings):
    """A session of an agent that works off a script; its file."""
    agent = Kept(
        llm=ScriptedModel(*script), tools=tools, session="s", session_dir=folder, **settings
    )
    for prompt in prompts:
        await agent.run(prompt)
    agent.close()
    return folder / "s.jsonl"
