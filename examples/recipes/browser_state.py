"""A browser agent that keeps the newest page in view, and not the forty before it.

One wants it when each step brings a large state (a page, a screen, a board) that outdates the one
before it. `ephemeral=1` lets an old one go from the model's view as soon as that costs less than
carrying it along; the log keeps all of them. A test brings a browser of its own, as here.
"""

from typing import Annotated

from agentloop import Agent, Depends, Loop, ScriptedModel, tool
from agentloop.common.model_info import CacheRules
from agentloop.common.tokens import message_tokens
from agentloop.models.scripted import call


class Browser:
    """Stands in for a real one, with many large pages."""

    def __init__(self) -> None:
        self.page = 0

    async def click(self, link: int) -> str:
        self.page += link
        return f"Page {self.page}: " + " ".join(f"[{n}] item {n}" for n in range(250))


def browser() -> Browser:
    raise LookupError("the program overrides this with its browser")


# One tool for all that changes the page (open, click, type): results are counted by tool.
@tool("Click a link, and see the page that comes", ephemeral=1, parallel=False)
async def click(link: int, browser: Annotated[Browser, Depends(browser)]) -> str:
    return await browser.click(link)


def surf(kind: type[Loop], clicks: int = 40) -> list[int]:
    """The tokens of each request of a run."""
    window = Browser()
    rules = CacheRules(smallest_prefix=512)  # the models of a provider state their own
    model = ScriptedModel(*[call("click", link=1)] * clicks, "Found it.", cache_rules=rules)
    agent = kind(llm=model, tools=[click], dependency_overrides={browser: lambda: window})
    agent.run_sync("Find the cheapest kettle.")
    return [sum(map(message_tokens, request.messages)) for request in model.requests]


if __name__ == "__main__":
    for kind in Loop, Agent:  # a Loop is an Agent without Ephemeral, among others
        sizes = surf(kind)
        print(f"{kind.__name__}: {sizes[-1]:,} tokens in the last request, {sum(sizes):,} in all")
