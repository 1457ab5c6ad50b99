"""Task: write `Checked`, a mixin over `finish` that refuses a wrong answer, and test it."""

from collections.abc import Callable

from agentloop import Agent, Loop, ScriptedModel, nudge


class Checked(Loop):
    """Rejects a wrong answer, and returns the reason to the model.

    checked_rule: what is wrong with a text; "" takes it.
    """

    checked_rule: Callable[[str], str] = lambda text: ""

    async def finish(self, result):
        answer = await super().finish(result)
        if answer and (objection := self.checked_rule(answer.text)):
            nudge(self, objection)
            return None
        return answer


class Cook(Checked, Agent):
    pass


def one_number(text):
    return "" if text.isdecimal() else "Answer with one number, in digits."


def test_a_wrong_answer_is_rejected_with_a_reason():
    model = ScriptedModel("About a dozen.", "12")
    result = Cook(llm=model, checked_rule=one_number).run_sync("How many eggs are there?")
    assert result.text == "12"
    assert model.requests[1].messages[-1].text == "Answer with one number, in digits."


if __name__ == "__main__":
    test_a_wrong_answer_is_rejected_with_a_reason()
    print("The test passed.")
    agent = Cook(llm=ScriptedModel("A dozen.", "Twelve.", "12"), checked_rule=one_number)
    agent.run_sync("How many eggs are there?")
    for message in agent.messages:
        print(f"{type(message).__name__}: {message.text}")
    print("Notice: after three nudges in a row the run ends with no_progress: see `Loop.nudge`.")
