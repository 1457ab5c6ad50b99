"""Task: let a cheap model write the summary, and count the requests to each model: print `requests
to the cheap model: 1` and `requests to the other: 4`."""

from agentloop import Compaction, CompactionConfig, Loop, ScriptedModel, call, tool

HOW = "Stir the flour and the eggs until it is smooth, let it rest, and bake it until golden. " * 13
COOKBOOK = {
    "pancakes": "8 pancakes take 4 eggs. " + HOW,
    "waffles": "6 waffles take 2 eggs. " + HOW,
    "omelette": "1 omelette takes 3 eggs. " + HOW,
}


@tool
def recipe(dish: str) -> str:
    """Return the ingredients and the preparation of a dish."""
    return COOKBOOK[dish]


cheap = ScriptedModel(
    "8 pancakes take 4 eggs, 6 waffles 2. Still to do: compare them with an omelette.",
    model="cheap",
)
model = ScriptedModel(
    call("recipe", dish="pancakes"),
    call("recipe", dish="waffles"),
    call("recipe", dish="omelette"),
    "A waffle: 6 of them take 2 eggs.",
)


class Cook(Compaction, Loop):
    compaction = CompactionConfig(context_window=1000, keep_turns=0, model=cheap)


agent = Cook(llm=model, tools=[recipe])

if __name__ == "__main__":
    print(agent.run_sync("Which takes fewest eggs: a pancake, a waffle or an omelette?"))
    print("requests to the cheap model:", len(cheap.requests))
    print("requests to the other:", len(model.requests))
    print("Notice: the cheap model reads the whole conversation, without a cached prefix.")
