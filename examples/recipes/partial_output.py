"""Partial values of `output_type` while the model is still writing the JSON.

Use them for a form or a table that fills in while you watch. The partial mode of pydantic reads
incomplete JSON. If a field has no default, there's no value before the field has arrived. The last
value is complete and validated.
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
    """Yield partial values, then the complete one, or None if the run has none."""
    partial, text, newest = TypeAdapter[Any](agent.output_type), "", None
    async with agent.query_stream(prompt) as stream:
        async for event in stream:
            match event:
                case events.TextDeltaEvent(content=piece):
                    text += piece
                case events.ToolCallDeltaEvent(tool="done", content=piece):
                    text += piece
                case events.TextEvent() | events.StepStartEvent():  # the reply is complete
                    text = ""
            with suppress(ValidationError):  # plain text, or a required field is missing
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
