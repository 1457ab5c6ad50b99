"""Runs that end only with a done tool, and answers of a given type.

Copy with: the core, common/nudge.py.

    agent = Agent(llm=llm, tools=[read], require_done_tool=True)
    agent = Agent(llm=llm, output_type=list[str])        # result.value is a list of texts

`@tool(ends_run=True)` declares a done tool. An agent without a done tool offers the built-in
`done`. Any other tool can raise TaskComplete to end the run. After plain text, a message instructs
the model to continue or to call the done tool, at most three times; then the run ends as
"no_progress".

With `output_type=`, the answer is a structured value: the argument of the built-in `done`, or valid
JSON text. An agent without tools requests JSON from the provider instead, if the model supports
structured output (`with_output`). The validation error of an invalid answer is returned to the
model, at most three times: a run that ends as "done" or "completed" has a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from pydantic_core import from_json

from ..common.nudge import nudge
from ..content import as_text
from ..errors import ToolError
from ..loop import Loop
from ..messages import JSON, AssistantMessage, Prompt, Result, TaskComplete
from ..model import ChatModel, Request
from ..tools import FunctionTool, Tool

Wanted = TypeVar("Wanted")

DONE_DESCRIPTION = "Finish the task. Call this once everything is done, with the answer."
DONE_NUDGE = "The task is not finished: continue, or call the {tool} tool if everything is done."
NOT_VALID = "Invalid answer. Answer with JSON of the required schema: {}"


@runtime_checkable
class OutputModel(ChatModel, Protocol):
    """A chat model that supports structured output: JSON answers with a specified schema."""

    def with_output(self, schema: JSON) -> ChatModel | None:
        """Return a copy of the model whose answers follow the schema, or None if unsupported."""
        ...


class DoneTool(Loop):
    """Ends a run when the model calls a done tool.

    require_done_tool: whether plain text is rejected as an answer. If False, plain text ends a run.
        Ignored with an `output_type`, which accepts valid JSON text as an answer.
    output_type: the type of `Result.value` (a BaseModel, a dataclass, `list[int]`, ...). Type
        checkers infer it from `await agent.run_as(City, prompt)`, or `city: City = result.value`.
    done_nudge: the message to the model after plain text; `{tool}` is replaced by the name of the
        done tool.
    """

    require_done_tool: bool = True
    output_type: Any = None
    done_nudge: str = DONE_NUDGE

    # of the current `run_as`; unannotated, and therefore not copied to a fork
    _run_type = cast(Any, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_output_type(self.output_type)

    async def run_as(self, output_type: type[Wanted], prompt: Prompt) -> Result[Wanted | None]:
        """Run a prompt with this `output_type`. The value is None after a run without an answer."""
        check_output_type(output_type)
        await self.wait_for_cancelled_run()
        self._run_type = output_type
        try:
            return await self.run(prompt)
        finally:
            del self._run_type

    @property
    def _type(self) -> Any:
        """Return the type of the answer in the current run, or None for text."""
        return self.output_type if self._run_type is None else self._run_type

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        if self._type is None:
            needed = self.require_done_tool and not done_names(tools)
        else:
            needed = bool(tools) or native_model(self.llm, self._type) is None
        return [*tools, done_tool(self._type)] if needed else tools

    async def call_model(self, request: Request) -> AssistantMessage:
        if self._type is not None and request.purpose == "step" and not request.tools:
            native = native_model(request.model or self.llm, self._type)
            request = replace(request, model=native or request.model)
        return await super().call_model(request)

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer is None or answer.stop_reason not in ("completed", "done"):
            return answer
        if self._type is not None:
            if answer.value is not None:
                return answer
            try:
                return replace(answer, value=parse_answer(answer.text, self._type))
            except ToolError as error:
                nudge(self, NOT_VALID.format(error))
                return None
        if answer.stop_reason == "done" or not self.require_done_tool:
            return answer
        names = " or ".join(done_names(self.toolset()))
        nudge(self, self.done_nudge.replace("{tool}", names))
        return None


@cache
def done_tool(output_type: Any = None) -> Tool:
    """Return the built-in done tool, whose argument is a message or a value of `output_type`."""

    def done(message: str) -> None:
        raise TaskComplete(message)

    def done_with(result: object) -> None:
        raise TaskComplete(as_text(result), result)

    function: Callable[..., None] = done if output_type is None else done_with
    types = {"result": output_type}
    return FunctionTool(
        function, DONE_DESCRIPTION, name="done", types=types, read_only=True, ends_run=True
    )


def check_output_type(output_type: Any) -> None:
    """Raise TypeError for a value instead of a type, such as City("Ulm") or [int]."""
    try:
        done_tool(output_type)
    except TypeError:
        raise TypeError(
            f"output_type must be a type, such as a pydantic model, a dataclass or list[int], not "
            f"{output_type!r:.80}"
        ) from None


def native_model(llm: ChatModel, output_type: Any) -> ChatModel | None:
    """Return a copy of the model for structured output of this type, or None if unsupported."""
    if not isinstance(llm, OutputModel):
        return None
    return llm.with_output(done_tool(output_type).parameters)


def parse_answer(text: str, output_type: Any) -> Any:
    """Parse and validate JSON text, optionally in a code fence.

    Raises ToolError for invalid JSON or a value of a different type.
    """
    fenced = re.search("```(?:json)?\\n(.*)```", text, re.DOTALL)
    if fenced:
        text = fenced[1]
    text = text.strip() or "null"
    try:
        from_json(text)
    except ValueError as error:
        raise ToolError(f"invalid JSON: {error}") from None
    form = done_tool(output_type)
    wrapped = f'{{"result": {text}}}'  # the argument of the done tool, unless the type is a model
    if text[0] != "{":
        return form.validate(wrapped)["result"]
    try:
        return form.validate(text)["result"]
    except ToolError:
        with suppress(ToolError):
            return form.validate(wrapped)["result"]
        raise


def done_names(tools: Sequence[Tool]) -> list[str]:
    """Return the names of the done tools: `done`, and tools with `ends_run`."""
    return [tool.name for tool in tools if tool.name == "done" or tool.ends_run]
