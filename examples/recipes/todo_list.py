"""A to-do list, and what comes of it when the model is about to forget half of it.

One wants it for long tasks. `Todo` offers the tool `todos`, shows what is open every few steps, and
holds an answer back once if something is still open. The list is in the log, so it is there after a
restart, after a summary and in a fork; this program reads it there, too.
"""

from agentloop import Agent, ScriptedModel
from agentloop.models.scripted import call
from agentloop.toolkits.todo import Todo, TodoList


class Worker(Todo, Agent):
    todo_reminder = 5


if __name__ == "__main__":
    items = [{"task": "paint the door", "state": "done"}, {"task": "clean up", "state": "open"}]
    fewer = [items[0], {"task": "clean up", "state": "dropped"}]
    script = call("todos", items=items), "Painted.", call("todos", items=fewer), "No broom here."
    worker = Worker(llm=ScriptedModel(*script))
    worker.run_sync("Paint the door and clean up.")
    for message in worker.messages:
        print(f"{type(message).__name__}: {message.text}")
    print("Left:", worker.fold(TodoList).left or "nothing")
