"""Problem: the agent seems to answer well. Is the new prompt better?

Measure it: ask questions whose answers you know, and count the right replies. Ten cases are enough
to start with; each mistake that somebody reports becomes another. Always read the failures.

A score needs a real model, costs money, and varies from run to run. To see what a change of your
program breaks, save the messages of a run and replay it, with the model's replies as a script:
that's free, and lists the messages which have changed.

Task: count an answer as right only if the model has called `stock` for it. The scores of the two
prompts are then `0 of 10` and `10 of 10`.
"""

import re
import tempfile
from pathlib import Path

from agentloop import Agent, AssistantMessage, ScriptedModel, call, dump_record, load_record, tool

PANTRY = {"flour": 900, "eggs": 12}
CASES = {f"Are the eggs enough for {n} pancakes?": n / 2 <= 12 for n in range(4, 44, 4)}
SHORT = "Answer yes or no."
CAREFUL = "Look up the stock before you answer yes or no."


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


def model(messages, tools):
    """Simulate a model that calls `stock` only if it's told to, and guesses otherwise."""
    system, *_, last = messages
    (pancakes,) = re.findall(r"\d+", next(m.text for m in reversed(messages) if "?" in m.text))
    if "Look up" in system.text and last.text.endswith("?"):
        return call("stock", item="eggs")
    eggs = int(last.text) if last.text.isdigit() else 20
    return "Yes." if int(pancakes) / 2 <= eggs else "No."


def score(template):
    """The cases that failed. Each one has a conversation of its own."""
    wrong = []
    for question, enough in CASES.items():
        answer = template.fork().run_sync(question).text
        if answer.startswith("Yes") != enough:
            wrong.append(f"{question} {answer}")
    return wrong


def agent(llm, prompt):
    return Agent(llm=llm, tools=[stock], system_prompt=prompt)


def play(llm, prompt, question):
    """Run a case, and return the whole conversation, with system prompt and answer."""
    answer = agent(llm, prompt).run_sync(question).text
    return [*llm.requests[-1].messages, AssistantMessage(answer)]


def replay(file, prompt, question):
    """Replay a case with the model's replies from a file, and return what has changed."""
    before = [load_record(line) for line in file.read_bytes().splitlines()]
    replies = [message for message in before if isinstance(message, AssistantMessage)]
    now = play(ScriptedModel(*replies), prompt, question)
    return [message.text for message in now if message not in before]


if __name__ == "__main__":
    for prompt in (SHORT, CAREFUL):
        wrong = score(agent(ScriptedModel(model), prompt))
        print(f"{10 - len(wrong)} of 10: {prompt}", *wrong, sep="\n   wrong: ")
    with tempfile.TemporaryDirectory() as folder:
        file, question = Path(folder, "eggs.jsonl"), "Are the eggs enough for 28 pancakes?"
        first = play(ScriptedModel(model), CAREFUL, question)
        file.write_bytes(b"\n".join(map(dump_record, first)))
        print("replayed:", replay(file, CAREFUL, question))
        print("replayed with the other prompt:", replay(file, SHORT, question))
    print("Notice: the score compares prompts. The replay shows what has changed.")
