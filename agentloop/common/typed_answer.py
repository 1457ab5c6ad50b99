"""An answer of a type: the done tool for it, its JSON schema, and how JSON text is read.

Copy with: the core.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any, Protocol, runtime_checkable

from pydantic_core import from_json

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
        """Return a copy of the model that answers with this schema, or None if it can't."""
        ...


class TypedAnswer:
    """How an agent asks for a value of a type. `tool` is a done tool whose argument has the type.

    Raises TypeError for a value instead of a type, such as City("Ulm") or [int].
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
        """Return a copy of the model that answers with JSON of the type, or None if it can't."""
        return llm.with_output(self.tool.parameters) if isinstance(llm, OutputModel) else None

    def parse(self, text: str) -> Any:
        """Return the value of JSON text, which may stand in a code fence.

        Raises ToolError if the text isn't JSON, or not of the type.
        """
        fenced = re.search("```(?:json)?\\n(.*)```", text, re.DOTALL)
        if fenced:
            text = fenced[1]
        text = text.strip() or "null"
        try:
            from_json(text)
        except ValueError as error:
            raise ToolError(f"invalid JSON: {error}") from None
        wrapped = f'{{"result": {text}}}'  # the tool's argument, unless the type is a model
        if text[0] != "{":
            return self.tool.validate(wrapped)["result"]
        try:
            return self.tool.validate(text)["result"]
        except ToolError:
            with suppress(ToolError):
                return self.tool.validate(wrapped)["result"]
            raise


@cache
def done_tool(output_type: Any) -> Tool:
    def done(result: object) -> None:
        raise TaskComplete(as_text(result), result)

    types = {"result": output_type}
    return FunctionTool(done, DESCRIPTION, types=types, read_only=True, ends_run=True)
