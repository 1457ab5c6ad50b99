"""Todo: a task list whose unfinished items are repeated to the model."""

from agentloop import Agent, Limits, ScriptedModel, assert_prefix_stable, tool
from agentloop.models.scripted import call
from agentloop.toolkits.todo import Todo, TodoList
from tests.core import test_loop


class Worker(Todo, Agent): ...


work = tool("Work", name="work")(lambda: "done")


def write(*states):
    return call("todos", items=[{"task": f"task {n}", "state": s} for n, s in enumerate(states)])


def last(llm, number):
    return llm.requests[number].messages[-1].text


class TestTodo(test_loop.TestLoop):
    agent_class = Todo

    async def test_a_run_that_would_end_with_open_items_is_reminded_once(self):
        first = write("done", "in_progress", "open", "dropped")
        llm = ScriptedModel(first, "Ready.", write("done", "open"), "Really.")
        assert await Worker(llm=llm).query("x") == "Really."
        assert "open items:\n[in_progress] task 1\n[open] task 2\n" in last(llm, 2)
        assert len(llm.requests) == 4
        assert_prefix_stable(llm.requests)

    async def test_a_done_result_is_postponed_by_open_items_and_a_limit_is_not(self):
        llm = ScriptedModel(write("open"), call("done", message="a"), call("done", message="b"))
        assert await Worker(llm=llm, require_done_tool=True).query("x") == "b"
        llm = ScriptedModel(write("open"), "never")
        limited = type("A", (Todo, Limits, Agent), {})(llm=llm, max_requests=1)
        assert (await limited.run("x")).stop_reason == "limit:requests"

    async def test_open_items_of_an_earlier_run_do_not_postpone_an_answer(self):
        llm = ScriptedModel(write("open"), "Not yet.", "No, not yet.", "It rains.")
        worker = Worker(llm=llm)
        await worker.query("Do it")
        assert await worker.query("How is the weather?") == "It rains."

    async def test_only_one_item_may_be_in_progress_and_an_invalid_list_is_ignored(self):
        llm = ScriptedModel(write("done"), write("in_progress", "in_progress"), "ok")
        assert await Worker(llm=llm).query("x") == "ok"
        assert "Only one item can be in progress" in last(llm, 2)

    async def test_open_items_are_repeated_every_few_steps(self):
        step = call("work")
        script = [step, write("open"), *[step] * 5, write("done"), *[step] * 4]
        llm = ScriptedModel(*script, "ok")
        worker = Worker(llm=llm, tools=[work], todo_reminder=2)
        await worker.query("x")
        reminders = [n for n in range(len(llm.requests)) if "list still has" in last(llm, n)]
        assert reminders == [4, 6]
        assert "open items:\n[open] task 0\n" in last(llm, 4)
        assert_prefix_stable(llm.requests)
        assert worker.fork().fold(TodoList).left == worker.fold(TodoList).left == ""
