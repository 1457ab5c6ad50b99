"""The model asks the user, and the answer arrives in another process.

Use the tool in a messenger bot or behind a web form, where processes should not wait for days. The
run ends with the question, is stored in the session, and continues after the answer. Calls of
tools with `external=True` are answered in the same way: by a person, a queue or a browser.
"""

import subprocess
import sys
from tempfile import TemporaryDirectory

from agentloop import Agent, ScriptedModel, Session, ToolMessage, call, tool
from agentloop.toolkits.ask import ask_user, question_text


@tool
def opening_hours(day: str) -> str:
    """Return the opening hours of the restaurant."""
    return f"{day}: 6 p.m. to 11 p.m."


class Waiter(Session, Agent):
    tools = (ask_user, opening_hours)


def answer(messages, tools):
    """Simulate a model: look up the hours and ask a question, then book."""
    results = [message.text for message in messages if isinstance(message, ToolMessage)]
    if results:
        return f"Booked: {', '.join(results)}."
    ask = call("ask_user", question="For how many people?", options=["two", "four"])
    return [call("opening_hours", day="Friday"), ask]


def handle(folder: str, message: str) -> None:
    """Process a message of the user: the answer to a pending question, or a prompt."""
    with Waiter(llm=ScriptedModel(answer), session="table", session_dir=folder) as waiter:
        if waiter.pending:
            waiter.answer(waiter.pending[0].id, message)
            result = waiter.run_sync()
        else:
            result = waiter.run_sync(message)
        for question in result.pending:
            print(question_text(question.parsed or {}))
        if not result.pending:
            print(result)


if __name__ == "__main__":
    if sys.argv[1:]:
        handle(*sys.argv[1:])
    else:
        with TemporaryDirectory() as folder:
            for message in ("A table for Friday, please.", "six"):
                print(f"> {message}", flush=True)
                subprocess.run([sys.executable, __file__, folder, message], check=True)
