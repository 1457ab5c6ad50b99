"""Problem: so far, the model was a script.

For a real model you change one thing: instead of `ScriptedModel`, use `ChatOpenAI`, `ChatAnthropic`
or `ChatGoogle`, which read the key from the environment. With a key, the lesson sends requests to
the provider, for a fraction of a cent. A local server needs an address and a model:

    OPENAI_API_KEY=... python examples/lessons/14_a_real_model.py

    ollama pull qwen3  # llama-server, vLLM and LM Studio have the same API
    export OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3
    python examples/lessons/14_a_real_model.py

Task: let a second model answer if the first one is unavailable, and print the name of the model
that answered: `the second says: `. Both may be scripts; an unavailable model starts with
`Overloaded("529: try later", status=529)`.
"""

import os

import agentloop
from agentloop import Agent, AssistantMessage, ModelError, ScriptedModel, Usage, call, tool

PANTRY = {"flour": 900, "eggs": 12}
MODELS = {
    "OPENAI_BASE_URL": ("ChatOpenAI", "gpt-5.4-mini"),
    "OPENAI_API_KEY": ("ChatOpenAI", "gpt-5.4-mini"),
    "ANTHROPIC_API_KEY": ("ChatAnthropic", "claude-sonnet-5"),
    "GEMINI_API_KEY": ("ChatGoogle", "gemini-flash-latest"),
    "GOOGLE_API_KEY": ("ChatGoogle", "gemini-flash-latest"),
}
ASK = [call("recipe", dish="pancakes"), call("stock", item="eggs"), call("stock", item="flour")]
ANSWER = "No: 20 pancakes take 10 eggs and 1000 g flour; there are 12 eggs, but 900 g flour."
SCRIPT = [ASK, AssistantMessage(ANSWER, usage=Usage(230, 40))]
LOUD = f"""
!!  NO REAL MODEL: the replies below come from a script.
!!  Set one of {", ".join(MODELS)}.
"""


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry: flour in grams, eggs in pieces."""
    return PANTRY[item]


@tool
def recipe(dish: str) -> str:
    """Return the ingredients of a dish."""
    return {"pancakes": "8 pancakes take 400 g flour and 4 eggs"}[dish]


def choose(environment):
    """The model for the first variable that's set, or else the script."""
    for variable, (provider, name) in MODELS.items():
        if environment.get(variable):
            if provider == "ChatOpenAI":
                name = environment.get("OPENAI_MODEL") or name
            return getattr(agentloop, provider)(name)
    print(LOUD)
    return ScriptedModel(*SCRIPT)


if __name__ == "__main__":
    agent = Agent(llm=choose(os.environ), tools=[stock, recipe])
    try:
        result = agent.run_sync("Can I make 20 pancakes?")
    except ModelError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None
    for message in agent.messages:
        if isinstance(message, AssistantMessage):
            for tool_call in message.tool_calls:
                print(f"{message.model} calls {tool_call.name} {tool_call.arguments}")
    print(result)
    tokens = result.usage
    print(f"Notice: {tokens.input_tokens} input and {tokens.output_tokens} output tokens reported.")
    print("Notice: the tools, the loop and the log are the same as in earlier lessons.")
