"""A to-do list with reminders for a model that has forgotten a task.

Use the list for long tasks. `Todo` provides the tool `todos`, repeats the open tasks every few
steps, and rejects an answer once if tasks remain incomplete. The list is stored in the log and
therefore available after a restart, after a summary and in a fork. This program also retrieves the
list from the log.
"""

from agentloop import Agent, ScriptedModel, call
from agentloop.toolkits.todo import Todo, TodoList


class Worker(Todo, Agent):
    todo_reminder = 5


if __name__ == "__main__":
    items = [{"task": "paint the door", "state": "done"}, {"task": "clean up", "state": "open"}]
    fewer = [items[0], {"task": "clean up", "state": "dropped"}]
    script = call("todos", items=items), "Painted.", call("todos", items=fewer), "I have no broom."
    worker = Worker(llm=ScriptedModel(*script))
    worker.run_sync("Paint the door and clean up.")
    for message in worker.messages:
        print(f"{type(message).__name__}: {message.text}")
    print("Left:", worker.fold(TodoList).left or "nothing")
