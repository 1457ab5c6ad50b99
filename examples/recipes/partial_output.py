"""A value of `output_type` while the model still writes it: as much as there is, again and again.

One wants it for a form or a table that fills itself in. pydantic's partial mode reads JSON that
ends anywhere; a field without a default keeps a value back until it is there. The last value is the
whole one, which has been checked.
https://docs.pydantic.dev/latest/concepts/experimental/#partial-validation
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from agentloop import Agent, ScriptedModel, events


class Line(BaseModel):
    item: str = ""
    amount: int = 0


class Invoice(BaseModel):
    customer: str = ""
    lines: list[Line] = Field(default_factory=list)


async def values(agent: Agent, prompt: str) -> AsyncIterator[Any]:
    """What is there so far, and at last all of it, or None if the run ended without a value."""
    partial, text, newest = TypeAdapter[Any](agent.output_type), "", None
    async with agent.query_stream(prompt) as stream:
        async for event in stream:
            match event:
                case events.TextDeltaEvent(content=piece):
                    text += piece
                case events.ToolCallDeltaEvent(tool="done", content=piece):
                    text += piece
                case events.TextEvent() | events.StepStartEvent():  # the reply is whole
                    text = ""
            with suppress(ValidationError):  # prose, or a field without a default is missing
                value = partial.validate_json(text, experimental_allow_partial="trailing-strings")
                if text and value != newest:
                    newest = value
                    yield value
    if stream.result and stream.result.value != newest:
        yield stream.result.value


async def main() -> None:
    text = (
        '{"customer": "Ada Lovelace", "lines": [{"item": "paper", "amount": 3}, {"item": "ink"}]}'
    )
    agent = Agent(llm=ScriptedModel(text), output_type=Invoice)
    async for invoice in values(agent, "Read this invoice."):
        print(invoice)


if __name__ == "__main__":
    asyncio.run(main())
