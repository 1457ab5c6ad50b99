"""How to get an answer of a type: the done tool that asks for it, and how its JSON is read.

Copy with: the core.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from pydantic_core import from_json, to_json

from ..content import as_text
from ..errors import ToolError
from ..messages import JSON, TaskComplete
from ..model import ChatModel
from ..tools import FunctionTool, Tool

DESCRIPTION = "Finish the task. Call this once everything is done, with the answer."


@runtime_checkable
class OutputModel(ChatModel, Protocol):
    """A chat model whose provider can be asked for JSON of a schema."""

    def with_output(self, schema: JSON) -> ChatModel | None:
        """A copy of the model that answers with this schema; None if it can't."""
        ...


class TypedAnswer:
    """Asks the model for a value of a type. `tool` is a done tool whose arguments have the type.

    Raises TypeError if you pass a value and not a type, such as City("Ulm") or [int].
    """

    def __init__(self, output_type: Any) -> None:
        try:
            self.tool = done_tool(output_type)
        except TypeError:
            raise TypeError(
                "output_type must be a type, such as a pydantic model, a dataclass or list[int], "
                f"not {output_type!r:.80}"
            ) from None

    def native_model(self, llm: ChatModel) -> ChatModel | None:
        """A copy of the model that answers with JSON of the type; None if it can't."""
        return llm.with_output(self.tool.parameters) if isinstance(llm, OutputModel) else None

    def parse(self, text: str) -> Any:
        """Read the value from JSON text, which may be inside a code fence, or from a plain word.

        Raises ToolError if the text is neither, or doesn't have the type.
        """
        fenced = re.search("```(?:json)?\\n(.*)```", text, re.DOTALL)
        text = text.strip()
        json_text = fenced[1].strip() if fenced else text
        problems = list[ToolError]()
        readings = list[object]()
        try:
            readings.append(from_json(json_text or "null"))
        except ValueError as error:
            problems.append(ToolError(f"invalid JSON: {error}"))
        if [*self.tool.parameters["properties"]] == ["result"]:  # the type isn't a model
            whole = readings if json_text.startswith("{") else []
            readings = [*whole, *({"result": value} for value in [*readings, text])]
        for arguments in readings:
            try:
                if arguments is None:  # a call may leave out its arguments, but this is no call
                    raise ToolError("the answer must be a JSON object, not null")
                return self.tool.validate(to_json(arguments).decode())["result"]
            except ToolError as problem:
                problems.append(problem)
        raise problems[0]


@lru_cache(256)  # a server may make a type for each request
def done_tool(output_type: Any) -> Tool:
    def done(result: object) -> None:
        raise TaskComplete(as_text(result), result)

    types = {"result": output_type}
    return FunctionTool(
        done, DESCRIPTION, types=types, read_only=True, idempotent=True, ends_run=True
    )
