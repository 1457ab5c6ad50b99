"""Questions from the model to the user: the run ends, and a later run continues with the answer.

Copy with: tools.py, transcript.py and their imports.

    agent = Agent(llm=llm, tools=[ask_user])
    result = await agent.run("Book a table.")            # "needs_answer", result.pending
    agent.answer(result.pending[0].id, "For four.")
    result = await agent.run()                           # in another process too, from a session

Any tool can get its answers from outside: `@tool(external=True)` is for work that a person, a
message queue or a browser does. The function of such a tool never runs. The other calls of the turn
do, and their results are recorded before the run ends.
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
    """A tool that has started asks the user; `agent.answer` records the UserAnswer.

    The run ends with "needs_answer". After the answer, `run()` runs the call again.

    arguments: the question as a JSON object. `agent.pending` shows it instead of the arguments of
        the call.
    state: what the tool wants to know when it runs again.
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
    """A pending question as Markdown, with numbered options."""
    options = enumerate(options_of(arguments), 1)
    lines = [f"{number}. {option}" for number, option in options]
    return "\n".join([str(arguments.get("question", "")), *lines])


def answer_text(arguments: JSON, answer: str) -> str:
    """What the user meant: the option whose number they gave, or the answer itself."""
    options = options_of(arguments)
    if answer in options:
        return answer
    numbered = {str(number): option for number, option in enumerate(options, 1)}
    return numbered.get(answer.strip().rstrip(".)"), answer)


def options_of(arguments: JSON) -> list[str]:
    """The options of an `ask_user` call: none if the model sent anything but a list."""
    match arguments.get("options"):
        case [*options]:
            return [str(option) for option in options]
        case _:
            return []
