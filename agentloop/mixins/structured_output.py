"""Answers of a type: a pydantic model, a dataclass, `list[int]`, ...

Copy with: the core, common/nudge.py, common/typed_answer.py.

    agent = Agent(llm=llm, output_type=list[str])      # result.value is a list of texts
    result = await agent.run_as(int, "How many are they?")

The model answers by calling `done`, whose arguments have the type, or with JSON as plain text. If
the agent has no tools, the provider is asked for JSON instead, if the model can do that
(`with_output`). If the provider refuses that request, as DeepSeek does, `done` is offered after all
(source: https://github.com/agentscope-ai/agentscope-java/issues/1720). A valid answer ends the run
as "done". If an answer is invalid, the model reads why and tries again. After three plain answers
in a row that are invalid, the next one ends the run as "no_progress".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..common.nudge import nudge
from ..errors import BadRequest, ToolError
from ..loop import Loop
from ..messages import AssistantMessage, Prompt, Result
from ..model import Request
from ..tools import Tool

if TYPE_CHECKING:
    from ..common.typed_answer import TypedAnswer

Wanted = TypeVar("Wanted")

NOT_VALID = "Invalid answer. Answer with JSON of the required schema: {}"


class StructuredOutput(Loop):
    """Gives a run's answer a type: read it from `Result.value`.

    output_type: a BaseModel, a dataclass, `list[int]`, ...; None for text. Type checkers know the
        type of the value if you write `await agent.run_as(City, prompt)`, or
        `city: City = result.value`.
    """

    output_type: Any = None

    # of this `run_as`; not annotated, so a fork doesn't copy it
    _run_answer = cast("TypedAnswer | None", None)

    def __post_init__(self) -> None:
        super().__post_init__()
        typed_answer(self.output_type)

    async def run_as(self, output_type: type[Wanted], prompt: Prompt) -> Result[Wanted | None]:
        """Run a prompt with this `output_type`. If the run has no answer, the value is None.

        To continue a run, after an approval for example, pass None as the prompt.
        """
        answer = typed_answer(output_type)
        await self.wait_for_cancelled_run()
        self._run_answer = answer
        try:
            return await self.run(prompt)
        finally:
            if self._run_answer is answer:  # else its event loop was closed, and another has begun
                del self._run_answer

    @property
    def _answer(self) -> TypedAnswer | None:
        return self._run_answer or typed_answer(self.output_type)

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        return [*tools, self._answer.tool] if self._answer else tools

    async def call_model(self, request: Request) -> AssistantMessage:
        answer = self._answer
        is_free = request.purpose == "turn" and request.tool_choice == "auto"
        if answer and is_free and request.tools == (answer.tool,):
            native = answer.native_model(request.model or self.llm)
            if native:
                try:
                    return await super().call_model(replace(request, model=native, tools=()))
                except BadRequest as error:
                    if type(error) is not BadRequest:  # the context or the content is refused
                        raise
        return await super().call_model(request)

    async def finish(self, result: Result) -> Result | None:
        ended = await super().finish(result)
        if not self._answer or not ended or ended.value is not None:
            return ended
        if ended.stop_reason not in ("completed", "done"):
            return ended
        try:
            return replace(ended, value=self._answer.parse(ended.text), stop_reason="done")
        except ToolError as error:
            nudge(self, NOT_VALID.format(error))
            return None


def typed_answer(output_type: Any) -> TypedAnswer | None:
    """How to ask for a value of a type; None if the answer is text."""
    if output_type is None:
        return None
    from ..common.typed_answer import TypedAnswer

    return TypedAnswer(output_type)
