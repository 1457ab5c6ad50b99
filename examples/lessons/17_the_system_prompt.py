"""Problem: the model does not know where it is, for whom it works, and what it must not do.

`system_prompt` says so. It is sent first with every request and is never in the log, so another one
may be tried on the same conversation. A good one says who the model is, what it is to do, how an
answer looks, when to stop, and what is not its job: in short sentences, each rule with its reason.

What changes does not belong there. The system prompt is the start of every request, and what a
provider has in its cache are equal starts: with the time in it, all of it is billed again.

Task: let the model know the time of each question, and let nothing be billed again for it. Print
the messages, and `0 tokens are billed again`. Hint: `agent.add_note(text)` adds a hidden message.
"""

from agentloop import Agent, Meter, RequestEvent, ScriptedModel, SystemMessage

RULES = """\
You help in the kitchen of a small bakery. You answer in one sentence.
You do not say whether food has gone off: somebody who smells it has to decide that.
"""
QUESTIONS = {
    "9:00": "Is the oven hot?",
    "9:20": "Is the dough ready?",
    "9:40": "Is this egg still good?",
}


class Measured(Meter, Agent):
    """Meter tells of each request how much of it the provider may have in its cache."""


def model(messages, tools):
    """Stands in for a model that does what its system prompt says."""
    told = messages[0].text if isinstance(messages[0], SystemMessage) else ""
    if "egg" not in messages[-1].text:
        return "It takes ten more minutes."
    return "Somebody has to smell it." if "gone off" in told else "Eat it: eggs keep for a month."


def ask(system_prompt):
    """Ask three questions; the time goes where the system prompt has a place for it."""
    events = []
    agent = Measured(llm=ScriptedModel(model), listeners=[events.append])
    for time, question in QUESTIONS.items():
        agent.system_prompt = system_prompt.format(time=time)
        answer = agent.run_sync(question)
    kept = [event.kept for event in events if isinstance(event, RequestEvent)]
    again = sum(event.tokens_again for event in events if isinstance(event, RequestEvent))
    roles = [type(message).__name__ for message in agent.messages]
    print(f"   {answer}\n   messages kept by request: {kept}; {again} tokens are billed again")
    print(f"   a system message in the log: {'SystemMessage' in roles}")


if __name__ == "__main__":
    print("-- no system prompt")
    ask("")
    print("-- the rules")
    ask(RULES)
    print("-- the rules, and the time")
    ask(RULES + "It is {time}.")
    print("Notice: the rules changed the answer; the time changed the bill.")
