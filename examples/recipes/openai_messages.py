"""Reads and writes conversations as Chat Completions dicts, with images and files.

Use the dicts to continue a conversation of another program, to store conversations in a format that
everybody knows, or to make data for training and evaluation. `load_history` accepts the dicts.

The system prompt is a setting: `load_history` leaves out system messages, and `agent.messages` has
none. `agent.messages` are what the model sees: in a long conversation, a summary replaces old
turns, and a call that awaits approval has a placeholder as its result. A Session keeps the whole
log.
"""

from typing import Any

from agentloop import Agent, ScriptedModel, SystemMessage, from_openai, to_openai


def main() -> None:
    function = {"name": "weather", "arguments": '{"city": "Bern"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    stored: list[dict[str, Any]] = [
        {"role": "system", "content": "You know the weather."},
        {"role": "user", "content": "How is the weather in Bern?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    agent = Agent(llm=ScriptedModel("You asked for Bern."), system_prompt="You know the weather.")
    agent.load_history(stored)
    system = SystemMessage(agent.system_text())
    print("the same:", to_openai([system, *agent.messages]) == stored)
    print(agent.run_sync("Which city was it?").text)
    print(to_openai(agent.messages)[-1])
    print(from_openai(stored)[1])


if __name__ == "__main__":
    main()
