"""Problem: a conversation grows until it's longer than the context window of the model.

Before that happens, `Compaction` asks the model for a summary. From then on, requests have the
task, the summary and the newest turns; the log keeps all records.

In this lesson the window has 1,000 tokens, and three recipes fill it; real windows have 100,000
tokens and more. watch_the_loop.html shows at record 25 how a summary replaces turns.

Task: let a cheap model write the summary, and count the requests to each model: print `requests to
the cheap model: 1` and `requests to the other: 4`.
"""

from agentloop import Compaction, CompactionConfig, CompactionEvent, Loop, ScriptedModel, call, tool

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


def show(title, messages):
    print(f"-- {title}")
    for message in messages:
        role = type(message).__name__.removesuffix("Message").lower()
        calls = [f"{c.name} {c.arguments}" for c in getattr(message, "tool_calls", ())]
        print(f"{role:>9}: {' '.join([*message.text.split(), *calls]):.80}")


def report(event):
    if isinstance(event, CompactionEvent):
        print(f"about {event.tokens_before} tokens before, and {event.tokens_after} after")


class Cook(Compaction, Loop):
    compaction = CompactionConfig(context_window=1000, threshold_ratio=0.8, keep_turns=0)


model = ScriptedModel(
    call("recipe", dish="pancakes"),
    call("recipe", dish="waffles"),
    call("recipe", dish="omelette"),
    "8 pancakes take 4 eggs, 6 waffles 2. Still to do: compare them with an omelette.",
    "A waffle: 6 of them take 2 eggs.",
)
agent = Cook(llm=model, tools=[recipe], listeners=[report])

if __name__ == "__main__":
    answer = agent.run_sync("Which takes fewest eggs: a pancake, a waffle or an omelette?")
    *_, before, after = (request.messages for request in model.requests)
    show("before: the summary request is the previous request plus one message", before)
    show("after: the next request", after)
    print(answer)
    print("Notice: the answer needs an egg count that only the summary still contains.")
    print("Notice: the model had not seen the omelette yet, so that recipe is kept unchanged.")
