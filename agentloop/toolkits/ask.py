"""Questions from the model to the user: the run ends, and a later run continues with the answer.

Copy with: tools.py, transcript.py and their imports.

    agent = Agent(llm=llm, tools=[ask_user])
    result = await agent.run("Book a table.")            # "needs_answer", result.pending
    agent.answer(result.pending[0].id, "For four.")
    result = await agent.run()                           # in another process too, from a session

Any tool can be answered externally: `@tool(external=True)` declares work for a person, a message
queue or a browser. The function of an external tool is never executed. The other calls of the turn
are executed, and their results are recorded before the run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic_core import to_json

from ..messages import JSON, ToolCall, frozen
from ..tools import tool
from ..transcript import Awaits, CallEntry, CallState


@frozen
class UserQuestion(Awaits):
    """The tool of a started call asks the user; `agent.answer` records the UserAnswer.

    The run ends as "needs_answer". After the answer, `run()` executes the call again.

    arguments: the question as a JSON object, which `agent.pending` presents in place of the
        arguments of the call.
    state: data of the tool for its next execution.
    """

    arguments: str
    state: str = ""

    def presented(self, call: ToolCall) -> ToolCall:
        return replace(call, arguments=self.arguments)

    def answered(self, content: object) -> UserAnswer:
        return UserAnswer(self.call_id, to_json(content).decode())


@frozen
class UserAnswer(CallEntry):
    """The answer to the newest UserQuestion of a call, as JSON text."""

    content: str

    def apply_to(self, state: CallState) -> None:
        state.awaits, state.status = None, "pending"


@tool(external=True, read_only=True)
def ask_user(question: str, options: Sequence[str] = ()) -> None:
    """Ask the user one question that only the user can answer or decide, and wait for the answer.

    Do not request information that you can find yourself. Do not ask whether to continue.

    Args:
        question: One question, including the information necessary to answer.
        options: Suggested answers, if any. The user may answer differently.
    """


def question_text(arguments: JSON) -> str:
    """Return a pending question as Markdown, with numbered options."""
    options = enumerate(options_of(arguments), 1)
    lines = [f"{number}. {option}" for number, option in options]
    return "\n".join([str(arguments.get("question", "")), *lines])


def answer_text(arguments: JSON, answer: str) -> str:
    """Return the option that the user selected by its number, otherwise the answer."""
    options = options_of(arguments)
    if answer in options:
        return answer
    numbered = {str(number): option for number, option in enumerate(options, 1)}
    return numbered.get(answer.strip().rstrip(".)"), answer)


def options_of(arguments: JSON) -> list[str]:
    """Return the options of an `ask_user` call; an empty list if the argument is not a list."""
    match arguments.get("options"):
        case [*options]:
            return [str(option) for option in options]
        case _:
            return []
