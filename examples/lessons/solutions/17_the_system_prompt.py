"""Task: tell the model the time of each question, without any token being billed again."""

from agentloop import Agent, ScriptedModel, assert_prefix_stable

RULES = "You help in the kitchen of a small bakery. You answer in one sentence."
QUESTIONS = {
    "9:00": "Is the oven hot?",
    "9:20": "Is the dough ready?",
    "9:40": "Is this egg still good?",
}


if __name__ == "__main__":
    model = ScriptedModel("It is.", "It is.", "Smell it.")
    agent = Agent(llm=model, system_prompt=RULES)
    for time, question in QUESTIONS.items():
        agent.add_note(f"It is {time}.")
        agent.run_sync(question)
    for message in model.requests[-1].messages:
        print(f"{type(message).__name__}: {message.text}")
    assert_prefix_stable(model.requests)
    print("0 tokens are billed again")
    print("Notice: an appended message does not change the prefix.")
