"""A browser agent whose requests have the newest page, and not the forty pages before it.

Use `ephemeral=1` if every step returns a large state (a page, a screen, a board) that replaces the
one before. Old states leave the requests once that costs less than sending them again; the log
keeps all of them. Tests override the browser, as this program does.
"""

from typing import Annotated

from agentloop import Agent, Depends, Loop, ScriptedModel, call, message_tokens, tool
from agentloop.common.model_info import CacheRules


class Browser:
    """Stands in for a real browser, with many large pages."""

    def __init__(self) -> None:
        self.page = 0

    async def click(self, link: int) -> str:
        self.page += link
        return f"Page {self.page}: " + " ".join(f"[{n}] item {n}" for n in range(150))


def browser() -> Browser:
    raise LookupError("override this dependency with a browser")


# One tool for every action (open, click, type), because `ephemeral` counts the results per tool.
@tool("Click a link and return the new page", ephemeral=1, parallel=False)
async def click(link: int, browser: Annotated[Browser, Depends(browser)]) -> str:
    return await browser.click(link)


def surf(kind: type[Loop], clicks: int = 40) -> list[int]:
    """How many tokens each request of a run has."""
    window = Browser()
    rules = CacheRules(smallest_prefix=512)  # real models have their provider's rules
    model = ScriptedModel(*[call("click", link=1)] * clicks, "Found it.", cache_rules=rules)
    agent = kind(llm=model, tools=[click], dependency_overrides={browser: lambda: window})
    agent.run_sync("Find the cheapest kettle.")
    return [sum(map(message_tokens, request.messages)) for request in model.requests]


if __name__ == "__main__":
    for kind in Loop, Agent:  # Loop lacks the mixins of Agent, such as Ephemeral
        sizes = surf(kind)
        print(f"{kind.__name__}: {sizes[-1]:,} tokens in the last request, {sum(sizes):,} in total")
