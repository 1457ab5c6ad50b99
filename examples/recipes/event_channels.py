"""Three event channels over server-sent events: what runs, what is said, and what a page can draw.

One wants it between an agent and a web page that shows a progress line, a text that grows, and a
chart. All three come out of one `query_stream`, in order; leaving the generator cancels the run.
An error goes out as the last event, since the answer's status 200 is long sent by then.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from typing import Any

from agentloop import Agent, Loop, ModelError, ScriptedModel, events, tool
from agentloop.models.scripted import call


def sse(event: str, **data: Any) -> str:
    """One server-sent event. JSON has no line breaks, so it is one line of data."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n"


async def channels(agent: Loop, prompt: str, drawn: Collection[str]) -> AsyncIterator[str]:
    """The lines of a run on the channels `status`, `text` and `data`: the results of `drawn`."""
    said = ""
    async with agent.query_stream(prompt) as stream:
        try:
            async for event in stream:
                match event:
                    case events.TextDeltaEvent(content=text):
                        yield sse("text", delta=text)
                    case events.TextEvent(content=text):
                        said = text
                        yield sse("text", whole=text)
                    case events.StepStartEvent(step_id=step, title=name):
                        yield sse("status", step=step, running=name)
                    case events.ToolResultEvent(tool=name, result=text, is_error=False):
                        if name in drawn:
                            yield sse("data", tool=name, value=json.loads(text))
                    case events.FinalResponseEvent(content=text, stop_reason=reason):
                        if text not in ("", said):  # no model said it: a done tool, a Stop
                            yield sse("text", whole=text)
                        yield sse("status", ended=reason)
        except ModelError as error:
            yield sse("status", ended="error", error=type(error).__name__)


@tool("Sales by month")
def sales(year: int) -> dict[str, int]:
    return {"January": year - 2000, "February": 31}


async def main() -> None:
    agent = Agent(llm=ScriptedModel(call("sales", year=2026), "More in February."), tools=[sales])
    async for lines in channels(agent, "How were sales?", drawn={"sales"}):
        print(lines, end="")


if __name__ == "__main__":
    asyncio.run(main())
