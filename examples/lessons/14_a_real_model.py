"""Problem: the model was a script all along.

Nothing else has to change for a real one: `ChatOpenAI`, `ChatAnthropic` and `ChatGoogle` take the
place of `ScriptedModel`. Each reads its key from the environment. With one of these keys set, this
program asks that provider and costs a fraction of a cent; without one it plays the script.

    OPENAI_API_KEY=... python examples/lessons/14_a_real_model.py

Try: with a key, ask for 30 pancakes. Which calls does the model make, and in which order?
"""

import os

from agentloop import (
    Agent,
    AssistantMessage,
    ChatAnthropic,
    ChatGoogle,
    ChatOpenAI,
    ModelError,
    ScriptedModel,
    Usage,
    tool,
)
from agentloop.models.scripted import call

PANTRY = {"flour": 900, "eggs": 12}
MODELS = {
    "OPENAI_API_KEY": (ChatOpenAI, "gpt-5-mini"),
    "ANTHROPIC_API_KEY": (ChatAnthropic, "claude-sonnet-5"),
    "GOOGLE_API_KEY": (ChatGoogle, "gemini-flash-latest"),
}


@tool
def stock(item: str) -> int:
    """How much of an item is in the pantry: flour in grams, eggs in pieces."""
    return PANTRY[item]


@tool
def recipe(dish: str) -> str:
    """What a dish takes."""
    return {"pancakes": "8 pancakes take 400 g flour and 4 eggs"}[dish]


def script():
    """What a model would say, with the tokens that it would report."""
    ask = call("recipe", dish="pancakes"), call("stock", item="eggs"), call("stock", item="flour")
    answer = "No: 20 pancakes take 10 eggs and 1000 g flour; there are 12 eggs, but 900 g flour."
    return ScriptedModel(list(ask), AssistantMessage(answer, usage=Usage(230, 40)))


def choose(environment):
    """The model of the first key that there is, else the script."""
    for key, (provider, name) in MODELS.items():
        if environment.get(key):
            return provider(name)
    return script()


if __name__ == "__main__":
    agent = Agent(llm=choose(os.environ), tools=[stock, recipe])
    try:
        result = agent.run_sync("Can I make 20 pancakes?")
    except ModelError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None
    for message in agent.messages:
        if isinstance(message, AssistantMessage):
            for asked in message.tool_calls:
                print(f"{message.model} calls {asked.name} {asked.arguments}")
    print(result)
    used = result.usage
    print(f"Notice: {used.input_tokens} tokens in, {used.output_tokens} out, as the model reports.")
    print("Notice: the tools, the loop and the log are those of the lessons before.")
