"""Problem: the agent answers well, as far as you have seen. Is the new prompt better?

Cases say so: questions whose right answers you know, a check that is a function, and a score. Ten
are enough to begin with; each mistake that somebody meets becomes one more. Read those that failed.

A score asks a real model, costs money and is another one each time. What must never break again is
a test that costs nothing: keep the messages of a run, and play it again with the model's words as a
script. The replay says what the program sends otherwise than before.

Task: count an answer as right only if the model has looked into the pantry for it. The two
prompts have `0 of 10` and `10 of 10` then.
"""

import re
import tempfile
from pathlib import Path

from agentloop import Agent, AssistantMessage, ScriptedModel, call, dump_record, load_record, tool

PANTRY = {"flour": 900, "eggs": 12}
CASES = {f"Are the eggs enough for {n} pancakes?": n / 2 <= 12 for n in range(4, 44, 4)}
SHORT = "Answer yes or no."
CAREFUL = "Look up what is there before you answer yes or no."


@tool
def stock(item: str) -> int:
    """How much of an item is in the pantry."""
    return PANTRY[item]


def model(messages, tools):
    """Stands in for a model that looks into the pantry if it is told to, and else is hopeful."""
    system, *_, last = messages
    (pancakes,) = re.findall(r"\d+", next(m.text for m in reversed(messages) if "?" in m.text))
    if "Look up" in system.text and last.text.endswith("?"):
        return call("stock", item="eggs")
    eggs = int(last.text) if last.text.isdigit() else 20
    return "Yes." if int(pancakes) / 2 <= eggs else "No."


def score(template):
    """Return which cases are wrong. Each has a fresh conversation."""
    wrong = []
    for question, enough in CASES.items():
        answer = template.fork().run_sync(question).text
        if answer.startswith("Yes") != enough:
            wrong.append(f"{question} {answer}")
    return wrong


def agent(llm, prompt):
    return Agent(llm=llm, tools=[stock], system_prompt=prompt)


def play(llm, prompt, question):
    """Run a case; return all that was sent and said, the system prompt included."""
    answer = agent(llm, prompt).run_sync(question).text
    return [*llm.requests[-1].messages, AssistantMessage(answer)]


def replay(file, prompt, question):
    """Play a case with the model's words from a file; return what has changed in it."""
    before = [load_record(line) for line in file.read_bytes().splitlines()]
    said = [each for each in before if isinstance(each, AssistantMessage)]
    now = play(ScriptedModel(*said), prompt, question)
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
    print("Notice: the score compares prompts. The replay says whether anything has changed.")
