"""A tool with which the model asks the user. The run ends, and goes on with the answer.

Copy with: tools.py and what it names.

    agent = Agent(llm=llm, tools=[ask_user])
    result = await agent.run("Book a table.")            # "needs_answer", result.pending
    agent.answer(result.pending[0].id, "For four.")
    result = await agent.run()                           # in another process too, from a session

Any tool may be answered from outside: `@tool(external=True)` is for what a person, a queue or a
browser does. Its function never runs. Other calls of the turn do, and have their results when the
run ends.
"""

from collections.abc import Sequence

from ..messages import JSON
from ..tools import tool


@tool(external=True, read_only=True)
def ask_user(question: str, options: Sequence[str] = ()) -> None:
    """Ask the user one thing that only they can know or decide, and wait for the answer.

    Do not ask what you can find out. Do not ask whether to go on.

    Args:
        question: one question, with all that they need to know to answer it.
        options: answers to choose from, if there are some; they may say something else.
    """


def question_text(arguments: JSON) -> str:
    """Return the question of a call of `ask_user` as Markdown, its options as a list."""
    lines = [str(arguments.get("question", ""))]
    lines += [f"- {option}" for option in arguments.get("options") or ()]
    return "\n".join(lines)
