"""Ends a run on a done tool only, so that the model cannot stop by just talking.

Copy with: the core.

A done tool is a function that raises TaskComplete. Bring your own, or get the built-in `done`.
After plain text the model is nudged to go on or to call it, three times at most; then the run ends
as "no_progress".

With `output_type=` the answer is a value. The built-in `done` takes it as its arguments; a text of
valid JSON is an answer, too. An agent without tools asks its provider for such JSON instead, if the
model can (`with_output`). An answer that is not valid is sent back, three times at most: a run that
ends as "done" or "completed" has its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic_core import from_json

from ..content import as_text
from ..errors import ToolError
from ..loop import ChatModel, Loop, Request
from ..messages import JSON, AssistantMessage, Result, TaskComplete
from ..runs import Prompt
from ..tools import FunctionTool, Tool

Wanted = TypeVar("Wanted")

DONE_DESCRIPTION = "Finish the task. Call this once everything is done, with the answer."
DONE_NUDGE = "You have not finished: go on with the task, or call the {tool} tool if it is done."
NOT_VALID = "This is no valid answer. Give it as JSON of the form that was asked for: {}"


@runtime_checkable
class OutputModel(ChatModel, Protocol):
    """A chat model that can be asked for an answer in JSON of a schema."""

    def with_output(self, schema: JSON) -> ChatModel | None:
        """Return a copy of the model that answers by the schema, or None if it cannot."""
        ...


class DoneTool(Loop):
    """Ends a run when a done tool is called.

    require_done_tool: plain text is no answer. If False, it ends a run as usual. With an
        `output_type` this counts for nothing: a text is an answer if it is valid JSON.
    output_type: the type of `Result.value` (a BaseModel, a dataclass, `list[int]`, ...). Checkers
        learn it from `await agent.run_as(City, prompt)`, or from `city: City = result.value`.
    done_nudge: what the model reads after plain text; `{tool}` stands for the done tool's name.
    """

    require_done_tool: bool = True
    output_type: Any = None
    done_nudge: str = DONE_NUDGE

    async def run_as(self, output_type: type[Wanted], prompt: Prompt) -> Result[Wanted | None]:
        """Run a prompt with this `output_type`. The value is None if the run has no answer."""
        self.refuse_if_busy()
        usual, self.output_type = self.output_type, output_type
        try:
            return await self.run(prompt)
        finally:
            self.output_type = usual

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        if self.output_type is None:
            needed = self.require_done_tool and not done_names(tools)
        else:
            needed = bool(tools) or native_model(self.llm, self.output_type) is None
        return [*tools, done_tool(self.output_type)] if needed else tools

    async def call_model(self, request: Request) -> AssistantMessage:
        if self.output_type is not None and request.purpose == "step" and not request.tools:
            native = native_model(request.model or self.llm, self.output_type)
            request = replace(request, model=native or request.model)
        return await super().call_model(request)

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer is None or answer.stop_reason not in ("completed", "done"):
            return answer
        if self.output_type is not None:
            if answer.value is not None:
                return answer
            try:
                return replace(answer, value=parse_answer(answer.text, self.output_type))
            except ToolError as error:
                self.nudge(NOT_VALID.format(error))
                return None
        if answer.stop_reason == "done" or not self.require_done_tool:
            return answer
        names = " or ".join(done_names(self.toolset()))
        self.nudge(self.done_nudge.replace("{tool}", names))
        return None


@cache
def done_tool(output_type: Any = None) -> Tool:
    """Make the built-in done tool: it takes a message, or a value of `output_type`."""

    def done(message: str) -> None:
        raise TaskComplete(message)

    def hand_over(result: object) -> None:
        raise TaskComplete(as_text(result), result)

    function: Callable[..., None] = done if output_type is None else hand_over
    types = {"result": output_type}
    return FunctionTool(function, DONE_DESCRIPTION, name="done", types=types, read_only=True)


def native_model(llm: ChatModel, output_type: Any) -> ChatModel | None:
    """Return a copy of the model that answers with JSON of the type, or None if it cannot."""
    if not isinstance(llm, OutputModel):
        return None
    return llm.with_output(done_tool(output_type).parameters)


def parse_answer(text: str, output_type: Any) -> Any:
    """Return the value in a JSON text, which may stand in a fence.

    Raises ToolError if it is not valid.
    """
    fenced = re.search("```(?:json)?\\n(.*)```", text, re.DOTALL)
    if fenced:
        text = fenced[1]
    text = text.strip() or "null"
    try:
        from_json(text)
    except ValueError as error:
        raise ToolError(f"this is no JSON: {error}") from None
    form = done_tool(output_type)
    wrapped = f'{{"result": {text}}}'  # what the done tool takes, if the type is no model
    if text[0] != "{":
        return form.validate(wrapped)["result"]
    try:
        return form.validate(text)["result"]
    except ToolError:
        with suppress(ToolError):
            return form.validate(wrapped)["result"]
        raise


def done_names(tools: Sequence[Tool]) -> list[str]:
    """Return the names of the done tools: `done`, and those whose function names TaskComplete."""
    return [tool.name for tool in tools if tool.name == "done" or names_task_complete(tool)]


def names_task_complete(tool: Tool) -> bool:
    """Return True if the name TaskComplete stands in the code of the tool's function."""
    function = tool.function if isinstance(tool, FunctionTool) else None
    code = getattr(function, "__code__", None)
    return "TaskComplete" in getattr(code, "co_names", ())
