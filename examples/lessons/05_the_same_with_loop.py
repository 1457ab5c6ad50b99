"""Problem: the loop of lesson 4 would be written again in every program.

`Loop` is that loop. It takes the model, the tools and the limit; its log holds the conversation.
This lesson gives it the script and the functions of lesson 4 and compares what comes out.

`ScriptedModel` is the library's own stand-in for a model. It is as strict as a provider: a list
of messages that one would refuse is an error here too.

Try: give two calls of SCRIPT in lesson 4 the same id. Which providers would mind, and who mends it?
"""

import json
import runpy
from pathlib import Path

from agentloop import AssistantMessage, Loop, ScriptedModel, ToolCall, tool
from agentloop.models.openai import write_openai_messages

LESSON_4 = runpy.run_path(str(Path(__file__).with_name("04_a_limit.py")))
QUESTION = "Are there enough eggs for 20 pancakes?"


def reply(message):
    """A reply of lesson 4 as the library has it."""
    calls = [ToolCall(call["id"], **call["function"]) for call in message.get("tool_calls", [])]
    return AssistantMessage(message["content"], calls)


agent = Loop(
    llm=ScriptedModel(*[reply(message) for message in LESSON_4["SCRIPT"]]),
    tools=[tool(function) for function in LESSON_4["TOOLS"].values()],
    max_iterations=3,
)

if __name__ == "__main__":
    result = agent.run_sync(QUESTION)
    by_hand = LESSON_4["run"](QUESTION, limit=3)
    by_loop = write_openai_messages(agent.messages, "system")  # as a provider would get them
    for message in by_loop:
        print(json.dumps(message))
    assert by_loop == by_hand
    print(f"Notice: {len(by_loop)} messages, equal to the {len(by_hand)} of lesson 4.")
    print(f"Notice: the result says why the run ended: {result.stop_reason}.")
