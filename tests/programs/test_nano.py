"""The promises of examples/nano.py, tested with the package's own tests where possible."""

import ast
import asyncio
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import pairwise
from typing import Annotated

import pytest
from pydantic import BaseModel

from agentloop import ScriptedModel as Scripted
from agentloop.models.scripted import call as ask
from tests.core import test_loop
from tests.core.test_loop import TestLoop as Contract
from tests.doubles.openai_double import Failure, OpenAIDouble, Reply, calls
from tests.library.promises import test_at_most_once as once
from tests.library.promises import test_cancelled_anywhere as cancelled
from tests.library.promises import test_valid_requests as valid

from .nano_adapter import NAMES, NANO, Agent, nano, tool
from .test_readme import PROGRAMS

# ---- the README


def applies(program):
    """Return whether nano.py defines all names imported by a README program."""
    imports = re.findall(r"^from (agentloop\S*) import (.*)$", program, re.MULTILINE)
    names = {name.strip() for _, names in imports for name in names.split(",")}
    supported = {module for module, _ in imports} <= {"agentloop", "agentloop.models.scripted"}
    return supported and all(hasattr(nano, n) for n in names) and "query_stream" not in program


APPLY = [(program, output) for program, output in PROGRAMS if applies(program)]
assert APPLY


@pytest.mark.parametrize(("program", "output"), APPLY)
def test_the_programs_of_the_readme_run_if_they_import_nano(program, output):
    program = re.sub(r"^from agentloop\S* import", "from nano import", program, flags=re.MULTILINE)
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        exec(compile(program, "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert stdout.getvalue() == output


def test_nano_fits_on_seven_printed_pages():
    text = NANO.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 450
    assert max(map(len, text.splitlines())) <= 100


# ---- the package's own tests


@pytest.fixture
def borrowed(monkeypatch):
    """Replace the package's classes and functions in test modules with nano.py's."""
    for module in (test_loop, once, cancelled, valid):
        for name in vars(module).keys() & NAMES.keys():
            monkeypatch.setattr(module, name, NAMES[name])
    config = nano.CompactionConfig(context_window=1000, threshold_ratio=0.4)
    monkeypatch.setitem(cancelled.SCENARIOS["compaction"], "compaction", config)


@pytest.mark.usefixtures("borrowed")
class TestNano:
    agent_class = Agent

    def make(self, *script, **settings):
        llm = Scripted(*script)
        return Agent(llm=llm, **settings), llm

    @pytest.mark.parametrize("kind", list(cancelled.SCENARIOS)[:4])
    async def test_a_cancellation_at_every_iteration_of_the_event_loop(self, kind):
        await cancelled.test_a_cancellation_at_every_iteration_of_the_event_loop(
            kind, "a new prompt"
        )

    @pytest.mark.parametrize("arguments", ["", "{", "[]", '{"amount": "x"}', "null", '"5"'])
    async def test_an_invalid_call_never_runs(self, arguments):
        ledger = []

        async def pay(amount: int) -> None:
            ledger.append(amount)

        await once.test_an_invalid_call_never_runs(arguments, tool("Pay")(pay), ledger)

    @pytest.mark.parametrize("reason", ["length", "refused"])
    async def test_a_call_in_an_incomplete_reply_never_runs(self, reason):
        ledger = []

        async def pay(amount: int) -> None:
            ledger.append(amount)

        run = once.test_a_call_in_an_incomplete_reply_never_runs
        await run(reason, False, tool("Pay")(pay), ledger)

    async def test_requests_are_valid_over_real_http(self):
        await valid.test_invalid_and_failing_calls_yield_valid_requests_over_http()


for inherited in (
    Contract.test_the_loop_calls_tools_until_the_model_answers,
    Contract.test_calls_next_to_a_done_call_receive_results,
    Contract.test_another_stop_takes_precedence_over_done,
    Contract.test_the_value_returned_by_a_cancelled_tool_is_recorded,
):
    setattr(TestNano, inherited.__name__, inherited)


# ---- the loop


def model_of(server, **settings):
    return nano.ChatOpenAI("m", base_url=server.base_url, api_key="k", **settings)


def agent_of(*script, **settings):
    """Return an agent with a scripted model; functions in the script compute a reply."""
    return Agent(llm=Scripted(*script), **settings)


def results_in(messages):
    return [message["content"] for message in messages if message["role"] == "tool"]


@nano.tool
def no_arguments() -> str:
    """Nothing"""
    return ""


async def test_results_are_recorded_as_tools_return_and_sent_in_the_order_of_the_calls():
    gate = asyncio.Event()

    @nano.tool("Wait for the other")
    async def slow() -> str:
        await gate.wait()
        return "slow"

    @nano.tool("Let the other go")
    async def quick() -> str:
        gate.set()
        return "quick"

    llm = nano.ScriptedModel([nano.call("slow"), nano.call("quick")], "done")
    agent = nano.Agent(llm=llm, tools=[slow, quick])
    await agent.run("go")
    assert results_in(agent.log) == ["quick", "slow"]
    assert results_in(agent.messages) == ["slow", "quick"]


async def test_at_max_iterations_the_model_answers_once_more_and_no_call_runs():
    ran = []
    note = tool("Note", name="note")(lambda: ran.append(1))
    agent = agent_of(lambda m, t: ask("note"), tools=[note], max_iterations=2)
    assert (await agent.run("go")).stop_reason == "max_iterations"
    assert len(ran) == 2
    assert agent.nano.messages[-1]["content"].startswith("You have no turns left")


async def test_the_answer_at_max_iterations_does_not_count_as_a_nudge():
    llm = nano.ScriptedModel("a", "b", "c", "d")
    agent = nano.Agent(llm=llm, require_done_tool=True, max_iterations=3)
    result = await agent.run("go")
    assert (result.text, result.stop_reason) == ("d", "max_iterations")
    assert agent.messages[-2]["content"] == nano.OUT_OF_TURNS


async def test_an_agent_runs_one_query_at_a_time_and_accepts_another_after_an_error():
    gate = asyncio.Event()

    async def slow(messages, tools):
        await gate.wait()
        raise OSError("down")

    agent = agent_of(slow, "fine")
    first = asyncio.create_task(agent.run("a"))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="await it first"):
        await agent.run("b")
    gate.set()
    with pytest.raises(OSError, match="down"):
        await first
    assert (await agent.run("c")).text == "fine"


async def test_the_log_is_json_and_another_agent_continues_it():
    first = nano.Agent(llm=nano.ScriptedModel(nano.call("add", a=1, b=2), "3"), tools=[add])
    await first.run("1 + 2?")
    second = nano.Agent(llm=nano.ScriptedModel(nano.call("add", a=3, b=3), "6"), tools=[add])
    second.log = json.loads(json.dumps(first.log))
    await second.run("and 3?")
    assert [message["content"] for message in second.messages][-4:] == ["and 3?", "", "6", "6"]
    ids = [record["tool_call_id"] for record in second.log if record["role"] == "tool"]
    assert len(set(ids)) == 2


@nano.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_settings_are_class_attributes_and_a_mistyped_setting_is_an_error():
    class Mine(nano.Agent):
        max_iterations = 3
        greeting: str = "hello"

    llm = nano.ScriptedModel()
    assert (Mine(llm=llm).max_iterations, Mine(llm=llm, greeting="hi").greeting) == (3, "hi")
    for wrong in ("max_iteration", "run", "log"):
        with pytest.raises(TypeError, match=f"Mine has no setting '{wrong}'"):
            Mine(llm=llm, **{wrong: 1})


# ---- tools


async def result_of(the_tool, arguments="{}", **settings):
    """Return the result of one call of a tool, as sent to the model."""
    function = {"name": the_tool.name, "arguments": arguments}
    llm = nano.ScriptedModel({"type": "function", "function": function}, "ok")
    agent = nano.Agent(llm=llm, tools=[the_tool], **settings)
    assert (await agent.run("go")).text == "ok"
    return agent.messages[2]["content"]


async def test_plain_functions_run_in_daemon_threads():
    threads = []
    await result_of(tool("Where", name="where")(lambda: threads.append(threading.current_thread())))
    assert threads[0] is not threading.main_thread()
    assert threads[0].daemon


@pytest.mark.parametrize("error", [StopIteration("enough"), ValueError(), RuntimeError("\ud800")])
@pytest.mark.parametrize("is_async", [True, False])
async def test_every_error_of_a_tool_becomes_a_result(error, is_async):
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    text = await result_of(tool("Fail")(fail_async if is_async else fail))
    assert type(error).__name__ in text
    assert "Interrupted" not in text, "the error is recorded"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("{", "JSON"),
        ("[]", "no JSON object"),
        ('{"a": "x"}', "Input should be a valid integer"),
        ("{}", "Field required"),
        ("", "Field required"),
        ('{"a": 1, "b": 2}', "Extra inputs are not permitted"),
        ('{"a": 1, "db": "mine"}', "Extra inputs are not permitted"),
    ],
)
async def test_invalid_arguments_are_reported_to_the_model_and_run_nothing(arguments, error):
    ran = []

    def get_db():
        ran.append("db")

    @nano.tool("Act")
    async def act(a: int, db: object = nano.Depends(get_db)) -> None:
        ran.append(a)

    assert error in await result_of(act, arguments)
    assert ran == []


async def test_arguments_are_converted_to_the_types_of_the_signature():
    class Place(BaseModel):
        city: str

    @nano.tool
    async def go(to: Place, how: str = "train", at: Annotated[int, "hours"] = 8) -> list[object]:
        """Go somewhere."""
        return [to, how, at]

    assert go.declaration["function"]["description"] == "Go somewhere."
    assert go.declaration["function"]["parameters"]["required"] == ["to"]
    assert await result_of(go, '{"to": {"city": "Rome"}, "at": "9"}') == (
        '[{"city":"Rome"},"train",9]'
    )


async def test_the_result_for_an_unknown_tool_lists_the_available_tools():
    agent = agent_of(ask("nope"), "ok", tools=[add])
    await agent.run("go")
    assert "'nope'; available tools: add" in agent.messages[2].text


async def test_a_timeout_is_reported_to_the_model():
    @nano.tool("Wait", timeout=0.01)
    async def wait() -> None:
        await asyncio.Event().wait()

    assert await result_of(wait) == "TimeoutError: effects are unknown"


async def test_dependencies_are_opened_in_order_overridden_and_closed_in_reverse_order():
    ledger = []

    def plain() -> str:
        return "plain"

    async def coroutine() -> str:
        return "async"

    async def first():
        ledger.append("open")
        yield "first"
        ledger.append("close first")

    async def second():
        yield "second"
        ledger.append("close second")

    @nano.tool("Act")
    def act(
        a: Annotated[str, nano.Depends(plain)],
        b: Annotated[str, nano.Depends(first)],
        c: str = nano.Depends(second),
        d: str = nano.Depends(coroutine),
    ) -> str:
        ledger.append("act")
        return f"{a} {b} {c} {d}"

    overrides = {plain: lambda: "fake"}
    assert await result_of(act, dependency_overrides=overrides) == "fake first second async"
    assert ledger == ["open", "act", "close second", "close first"]
    assert act.declaration["function"]["parameters"]["properties"] == {}


async def test_a_dependency_receives_the_error_of_the_tool_and_cannot_suppress_it():
    effects = []

    async def connection():
        try:
            yield 1
        except ValueError:
            effects.append("rollback")

    @nano.tool("Act")
    async def act(c: int = nano.Depends(connection)) -> None:
        raise ValueError("no")

    assert "suppressed" in await result_of(act)
    assert effects == ["rollback"]


# ---- waits


async def test_a_tool_that_ignores_cancellation_is_abandoned_and_records_nothing_later():
    started, release = [], asyncio.Event()

    @nano.tool("Refuse to stop")
    async def refuse() -> None:
        started.append(1)
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    llm = nano.ScriptedModel([nano.call("refuse"), nano.call("refuse")], "ok")
    agent = nano.Loop(llm=llm, tools=[refuse], cancel_timeout=0.01)
    task = asyncio.create_task(agent.run("x"))
    while len(started) < 2:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (await agent.run("go on")).text == "ok"
    agent.log = []
    release.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert agent.messages == []


async def test_a_second_cancellation_does_not_interrupt_the_closing_of_a_dependency():
    closing, may_close, closed = asyncio.Event(), asyncio.Event(), []

    async def connection():
        try:
            yield 1
        finally:
            closing.set()
            await may_close.wait()
            closed.append(1)

    @nano.tool("Act")
    async def act(c: int = nano.Depends(connection)) -> None:
        await asyncio.Event().wait()

    agent = nano.Loop(llm=nano.ScriptedModel(nano.call("act")), tools=[act])
    task = asyncio.create_task(agent.run("x"))
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    await closing.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_close.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert closed == [1]


def test_a_function_that_never_returns_blocks_neither_the_run_nor_the_interpreter():
    program = """
import threading, nano

@nano.tool("Hang", timeout=0.01)
def hang() -> None:
    threading.Event().wait()

agent = nano.Agent(llm=nano.ScriptedModel(nano.call("hang"), "ok"), tools=[hang])
print(agent.run_sync("x"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=NANO.parent,
    )
    assert (done.stdout, done.stderr) == ("ok\n", "")


# ---- requests


async def test_requests_are_valid_for_any_text_of_the_model_and_of_tools():
    @nano.tool("Bad text")
    async def bad(deep: bool) -> object:
        return {"a": ["\ud83d"]} if deep else "\ud83d half \ud83d\ude00"

    odd_names = calls(("no such: tool", {}), ("bad", "{"), ("bad", "[]"), ("bad", ""))
    odd_ids = Reply(
        calls=[("bad", {"deep": True}, call_id) for call_id in ("same", "same", "x" * 60, "")]
    )
    script = [odd_names, odd_ids, odd_ids, calls(("bad", {"deep": False})), " ", "ok", "again"]
    async with OpenAIDouble(script, system="\ufffd system") as server:
        settings = {"tools": [bad], "system_prompt": "\ufffd system"}
        agent = nano.Agent(llm=model_of(server), **settings)
        assert (await agent.run("\udcff prompt")).text == ""
        assert (await agent.run("and?")).text == "ok"
        assert (await agent.run("and?")).text == "again"
    assert server.refusals == server.prefix_breaks == []
    assert agent.usage == (70, 35)
    assert server.headers[0]["authorization"] == "Bearer k"


async def test_a_run_over_http_can_be_cancelled_at_every_iteration_of_the_event_loop():
    ran = []

    @nano.tool("Act")
    async def act(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0)

    def answer(body):
        n = len(ran)
        return "yes" if body["messages"][-1]["role"] == "tool" else calls(("act", {"n": n}))

    async with OpenAIDouble([answer] * 2000) as server:
        agent, turns, ended = nano.Agent(llm=model_of(server), tools=[act]), 0, False
        while not ended:
            task, turns = asyncio.ensure_future(agent.run("go")), turns + 1
            for _ in range(turns):
                await asyncio.sleep(0)
            ended = task.done()
            task.cancel()
            await asyncio.wait([task])
            assert ended or task.cancelled(), "a cancel always cancels"
    assert server.refusals == []
    assert len(ran) > 10


async def test_an_incomplete_reply_runs_no_call_and_does_not_complete_the_run():
    cut = Reply(text="half", calls=[("no_arguments", {})], finish="length")
    refused = Reply(text="no", finish="content_filter")
    async with OpenAIDouble([cut, refused, "fine"]) as server:
        agent = nano.Agent(llm=model_of(server), tools=[no_arguments])
        ends = [(await agent.run(prompt)) for prompt in ("a", "b", "c")]
    assert [end.stop_reason for end in ends] == ["limit:length", "refused", "completed"]
    assert results_in(agent.log) == []
    assert server.refusals == []


@pytest.fixture
def at_once(monkeypatch):
    """Skip the delays between attempts, and record them."""
    sleep, waits = asyncio.sleep, []

    async def wait(seconds):
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(nano.asyncio, "sleep", wait)
    return waits


async def test_temporary_errors_are_retried_and_others_contain_the_message_of_the_server(at_once):
    async with OpenAIDouble([Failure(503), "up", Failure(400, "no such model")]) as server:
        agent = nano.Agent(llm=model_of(server))
        assert (await agent.run("go")).text == "up"
        with pytest.raises(nano.ModelError, match="no such model"):
            await agent.run("go")
        assert (len(server.requests), at_once) == (3, [1])
    with pytest.raises(nano.ModelError, match="no reply from http"):
        await agent.run("go")
    assert at_once == [1, 1, 2, 4, 0]


def test_a_repr_never_contains_the_key():
    model = nano.ChatOpenAI("m", api_key="sk-secret")
    assert "secret" not in repr(model) + repr(nano.Agent(llm=model))


# ---- the mixins


class Done(nano.DoneTool, nano.Loop):
    pass


async def test_a_done_tool_ends_the_run_after_a_nudge():
    @nano.tool
    async def hand_in(answer: int) -> None:
        """Hand in the answer."""
        raise nano.TaskComplete(f"It is {answer}.", answer)

    for tools, last in (
        ([], nano.call("done", message="It is 5.")),
        ([hand_in], nano.call("hand_in", answer=5)),
    ):
        agent = Done(llm=nano.ScriptedModel("just text", last), tools=tools)
        result = await agent.run("go")
        assert (result.text, result.stop_reason) == ("It is 5.", "done")
        assert "done tool" in agent.messages[2]["content"]
    assert result.value == 5


async def test_a_custom_done_tool_replaces_the_default_done_tool():
    @nano.tool
    async def done(count: int) -> None:
        """Finish with a number."""
        raise nano.TaskComplete(f"It is {count}.", count)

    agent = Done(llm=nano.ScriptedModel(nano.call("done", count=5)), tools=[done])
    assert [tool.description for tool in agent.toolset()] == ["Finish with a number."]
    assert (await agent.run("go")).value == 5


async def test_the_run_ends_after_three_nudges_without_a_call():
    talk = ["a", "b", nano.call("add", a=1, b=2), "c", "d", "e", "f"]
    result = await Done(llm=nano.ScriptedModel(*talk), tools=[add]).run("go")
    assert (result.text, result.stop_reason) == ("f", "no_progress")


async def pages(*script, **settings):
    """Return which messages of each request contain a page, and the agent."""

    @nano.tool("Look", ephemeral=2)
    async def look(n: int) -> str:
        return f"page {n}"

    llm = Scripted(*script, "done")
    agent = Agent(llm=llm, tools=[look], **settings)
    await agent.run("go")
    texts = [[m.text for m in request.messages] for request in llm.requests]
    return [[text.startswith("page") for text in request if text] for request in texts], agent


async def test_old_results_are_pruned_in_batches_and_stay_in_the_log():
    visible, agent = await pages(*([ask("look", n=n)] for n in range(20)))
    broken = 0
    for before, after in pairwise(visible):
        changed = [now and not then for then, now in zip(before, after, strict=False)]
        assert not any(changed), "pruned results stay pruned"
        broken += before != after[: len(before)]
        assert all(after[1:][-2:])
    assert broken == 2
    assert sum(visible[-1]) < 2 + 8 + 1
    assert sum("page" in text for text in results_in(agent.nano.log)) == 20


async def test_results_that_the_model_has_not_received_are_never_pruned():
    visible, _ = await pages([ask("look", n=n) for n in range(12)])
    assert sum(visible[1]) == 12


async def test_compaction_keeps_the_system_prompt_the_task_and_the_newest_turns():
    @nano.tool("Read")
    async def read(n: int) -> str:
        return f"page {n} " + "word " * 200

    def answer(body):
        if body["messages"][-1]["content"] == nano.SUMMARIZE:
            return "SUMMARY"
        n = len(server.requests)
        return calls(("read", {"n": n})) if n < 20 else "the end"

    config = nano.CompactionConfig(context_window=3000)
    async with OpenAIDouble([answer] * 40, system="SYSTEM") as server:
        settings = {"tools": [read], "system_prompt": "SYSTEM", "compaction": config}
        agent = nano.Agent(llm=model_of(server), **settings)
        assert (await agent.run("the task")).text == "the end"
    assert server.refusals == []
    summaries = sum(record["role"] == "summary" for record in agent.log)
    assert len(server.prefix_breaks) == summaries >= 2, "only after a summary"
    last = [message["content"] for message in server.requests[-1]["messages"]]
    assert last[:3] == ["SYSTEM", "the task", "So far: SUMMARY"]
    assert 2 <= sum("page" in text for text in last) <= 8
    assert agent.usage.input_tokens == 10 * len(server.requests)


async def test_an_empty_summary_is_ignored():
    script = [[ask("add", a=1, b=2)]] * 3 + ["", "the end"]
    config = nano.CompactionConfig(context_window=400)
    agent = agent_of(*script, tools=[add], compaction=config)
    assert (await agent.run("go " * 300)).text == "the end"
    assert not any(record["role"] == "summary" for record in agent.nano.log)


# ---- as a program, and with changes by users


def run_nano(*arguments, **environment):
    clean = {name: it for name, it in os.environ.items() if not name.startswith("OPENAI_")}
    command = [sys.executable, "-W", "error", str(NANO), *arguments]
    settings = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 60}
    return subprocess.run(command, env=clean | environment, **settings)


def test_nano_runs_as_a_program():
    done = run_nano()
    assert (done.returncode, done.stderr) == (0, "")
    assert "'2 + 3 is 5.'" in done.stdout.splitlines()[-1]
    script = [calls(("add", {"a": 20, "b": 3})), "It is 23."]
    with OpenAIDouble(script).in_thread() as server:
        settings = {"OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": "some-model"}
        done = run_nano("20 and 3?", **settings)
    assert "It is 23." in done.stdout
    assert server.requests[0]["messages"][0]["content"] == "20 and 3?"
    assert server.requests[0]["model"] == "some-model"


COST_LIMIT = """
class Limited(nano.Agent):
    max_cost: float = 1.0  # dollars, at 0.25 and 2 for a million tokens

    async def call_model(self, request):
        if (self.usage.input_tokens * 0.25 + self.usage.output_tokens * 2) / 1e6 > self.max_cost:
            raise nano.Stop("limit:cost", "The money is spent.")
        return await super().call_model(request)
"""
STREAMING = """
class Streaming(nano.ChatOpenAI):
    async def ainvoke(self, messages, tools=()):
        body = {"model": self.model, "messages": messages, "stream": True}
        body |= {"tools": [tool.declaration for tool in tools]} if tools else {}
        headers = {"Authorization": f"Bearer {self.api_key}"}
        reply = {"content": "", "tool_calls": []}
        async with httpx.AsyncClient(headers=headers, timeout=600) as client:
            url = f"{self.base_url}/chat/completions"
            async with client.stream("POST", url, json=body) as response:
                async for line in response.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    for choice in json.loads(line[6:])["choices"]:
                        reply["_finish"] = choice["finish_reason"]
                        if text := choice["delta"].get("content"):
                            reply["content"] += text
                            on_text(text)
                        for piece in choice["delta"].get("tool_calls") or []:
                            if piece["index"] == len(reply["tool_calls"]):
                                reply["tool_calls"].append(piece)
                            else:
                                call = reply["tool_calls"][piece["index"]]["function"]
                                call["arguments"] += piece["function"]["arguments"]
        return reply
"""


async def test_a_cost_limit_requires_seven_lines():
    names = {"nano": nano}
    exec(COST_LIMIT, names)
    async with OpenAIDouble([calls(("add", {"a": 1, "b": 2}))] * 9) as server:
        agent = names["Limited"](llm=model_of(server), tools=[add], max_cost=0.000_03)
        result = await agent.run("go")
    assert (result.stop_reason, len(server.requests)) == ("limit:cost", 3)
    assert len(COST_LIMIT.strip().splitlines()) == 7


async def test_a_model_with_one_method_streams_to_a_callback():
    import httpx

    texts = []
    names = {"nano": nano, "httpx": httpx, "json": json, "on_text": texts.append}
    exec(STREAMING, names)
    async with OpenAIDouble([calls(("add", {"a": 20, "b": 3})), "It is 23, I say."]) as server:
        agent = nano.Agent(llm=names["Streaming"]("m", server.base_url, "k"), tools=[add])
        assert (await agent.run("go")).text == "It is 23, I say."
    assert len(texts) > 1
    assert "".join(texts) == "It is 23, I say."
    assert results_in(agent.log) == ["23"]


def test_all_functions_of_nano_have_a_return_type():
    tree = ast.parse(NANO.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.returns is not None, node.name
