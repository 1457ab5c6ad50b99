"""Problem: the model doesn't know who it is, whom it helps, and what it mustn't do.

You tell it in `system_prompt`, which comes first in every request and is never in the log, so you
can try another prompt on the same conversation. A good prompt states the role, the task, the format
of an answer, when to stop, and what isn't part of the task: in short sentences, and each rule with
its reason.

What changes doesn't belong there. The system prompt is the beginning of every request, and
providers cache equal beginnings: if it contains the time, you pay for the whole request again.

Task: tell the model the time of each question, without any token being billed again. Print the
messages, and `0 tokens are billed again`. Hint: `agent.add_note(text)` appends a hidden message.
"""

from itertools import pairwise

from agentloop import Agent, ScriptedModel, SystemMessage, message_tokens

RULES = """\
You help in the kitchen of a small bakery. You answer in one sentence.
Never judge whether food has gone off: a person has to smell it.
"""
QUESTIONS = {
    "9:00": "Is the oven hot?",
    "9:20": "Is the dough ready?",
    "9:40": "Is this egg still good?",
}


def model(messages, tools):
    """Simulate an obedient model."""
    rules = messages[0].text if isinstance(messages[0], SystemMessage) else ""
    if "egg" not in messages[-1].text:
        return "It takes ten more minutes."
    return "A person has to smell it." if "gone off" in rules else "Eat it: eggs keep for a month."


def compare(before, after):
    """Count the messages that are cached, and the tokens that are billed again.

    The cache has the messages that are those of the request before, from the first on.
    """
    old, new = before.messages, after.messages
    kept = 0
    while kept < len(old) and old[kept] == new[kept]:
        kept += 1
    return kept, message_tokens([message for message in new[kept:] if message in old[kept:]])


def ask(system_prompt):
    """Ask three questions. The time replaces the placeholder in the system prompt."""
    llm = ScriptedModel(model)
    agent = Agent(llm=llm)
    for time, question in QUESTIONS.items():
        agent.system_prompt = system_prompt.format(time=time)
        answer = agent.run_sync(question)
    compared = [compare(before, after) for before, after in pairwise(llm.requests)]
    cached = [0, *(kept for kept, _ in compared)]
    again = sum(tokens for _, tokens in compared)
    roles = [type(message).__name__ for message in agent.messages]
    print(f"   {answer}\n   cached messages per request: {cached}; {again} tokens are billed again")
    print(f"   a system message in the log: {'SystemMessage' in roles}")


if __name__ == "__main__":
    print("-- no system prompt")
    ask("")
    print("-- the rules")
    ask(RULES)
    print("-- the rules, and the time")
    ask(RULES + "It is {time}.")
    print("Notice: the rules changed the answer; the time changed the bill.")
