"""examples/nano.py and the package keep one set of promises: each test runs against both."""

import asyncio
import contextlib
import importlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import threading
import types
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

import agentloop

from .doubles.openai_double import Failure, OpenAIDouble, Reply, calls
from .test_readme import PROGRAMS

ROOT = Path(__file__).parent.parent
NANO = ROOT / "examples" / "nano.py"


def load_nano():
    spec = importlib.util.spec_from_file_location("nano", NANO)
    module = importlib.util.module_from_spec(spec)
    sys.modules["nano"] = module
    spec.loader.exec_module(module)
    return module


nano = load_nano()
package = types.SimpleNamespace(**{name: getattr(agentloop, name) for name in agentloop.__all__})
package.call = importlib.import_module("agentloop.models.scripted").call


@pytest.fixture(params=[package, nano], ids=["agentloop", "nano"])
def lib(request):
    return request.param


def model_of(lib, server, **settings):
    return lib.ChatOpenAI("m", base_url=server.base_url, api_key="k", **settings)


# ---- the README


def applies(program):
    """Whether nano.py has all that a README program imports."""
    imports = re.findall(r"^from (agentloop\S*) import (.*)$", program, re.MULTILINE)
    names = {name.strip() for _, names in imports for name in names.split(",")}
    known = {module for module, _ in imports} <= {"agentloop", "agentloop.models.scripted"}
    return known and all(hasattr(nano, n) for n in names) and "query_stream" not in program


APPLY = [(program, output) for program, output in PROGRAMS if applies(program)]
assert len(APPLY) >= 2


@pytest.mark.parametrize(("program", "output"), APPLY)
def test_the_readmes_programs_run_with_nano_as_their_import(program, output):
    program = re.sub(r"^from agentloop\S* import", "from nano import", program, flags=re.MULTILINE)
    program = program.replace(", idempotent=True", "")  # for sessions, which nano has not
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert printed.getvalue() == output


# ---- the loop


async def test_a_call_and_an_answer(lib):
    @lib.tool("Add two numbers")
    async def add(a: int, b: int) -> int:
        return a + b

    llm = lib.ScriptedModel(lib.call("add", a=2, b=3), "It is 5.")
    agent = lib.Agent(llm=llm, tools=[add], system_prompt="Be brief.")
    result = await agent.run("2 + 3?")
    assert (result.text, result.stop_reason, str(result)) == ("It is 5.", "completed", "It is 5.")
    kinds = [type(message).__name__ for message in llm.requests[1].messages]
    assert kinds == ["SystemMessage", "UserMessage", "AssistantMessage", "ToolMessage"]
    assert [m.text for m in agent.messages] == ["2 + 3?", "", "5", "It is 5."]
    assert await add(1, 2) == 3
    assert not any(isinstance(record, lib.SystemMessage) for record in agent.log)
    assert agent.messages[1].tool_calls[0].id == agent.messages[2].tool_call_id != ""


async def test_results_are_recorded_when_their_tool_returns_and_shown_in_call_order(lib):
    gate = asyncio.Event()

    @lib.tool("Wait for the other")
    async def slow() -> str:
        await gate.wait()
        return "slow"

    @lib.tool("Let the other go")
    async def quick() -> str:
        gate.set()
        return "quick"

    llm = lib.ScriptedModel([lib.call("slow"), lib.call("quick")], "done")
    agent = lib.Agent(llm=llm, tools=[slow, quick])
    await agent.run("go")
    recorded = [r.text for r in agent.log if isinstance(r, lib.ToolMessage)]
    shown = [m.text for m in agent.messages if isinstance(m, lib.ToolMessage)]
    assert (recorded, shown) == (["quick", "slow"], ["slow", "quick"])


async def test_a_forced_tool_is_forced_once_and_the_last_turn_is_an_answer(lib):
    forced = lib.tool(no_arguments)
    llm = lib.ScriptedModel(lib.call(forced.name), lib.call(forced.name), "That is all.")
    agent = lib.Agent(llm=llm, tools=[forced], max_iterations=2, tool_choice=forced.name)
    result = await agent.run("go")
    assert (result.text, result.stop_reason) == ("That is all.", "max_iterations")
    assert [request.tool_choice for request in llm.requests] == [forced.name, "auto", "auto"]


async def test_a_reply_that_was_cut_off_runs_no_call_and_is_no_success(lib):
    ran = []
    cut = lib.AssistantMessage(tool_calls=(lib.ToolCall("c1", "write"),), stop_reason="length")
    write = lib.tool("Write", name="write")(lambda: ran.append(1))
    assert (
        await lib.Agent(llm=lib.ScriptedModel(cut, "sorry"), tools=[write]).query("go") == "sorry"
    )
    assert ran == []
    for word, reason in (("length", "limit:length"), ("refused", "refused")):
        llm = lib.ScriptedModel(lib.AssistantMessage("half", stop_reason=word))
        assert (await lib.Agent(llm=llm).run("go")).stop_reason == reason


async def test_an_empty_reply_is_asked_for_again_and_not_for_ever(lib):
    agent = lib.Agent(llm=lib.ScriptedModel("", "here"))
    assert (await agent.run("go")).text == "here"
    result = await lib.Agent(llm=lib.ScriptedModel(lambda messages, tools: "")).run("go")
    assert result.stop_reason == "no_progress"


async def test_one_query_at_a_time(lib):
    gate = asyncio.Event()

    async def answer(messages, tools):
        await gate.wait()
        return "yes"

    agent = lib.Agent(llm=lib.ScriptedModel(answer))
    running = asyncio.ensure_future(agent.run("one"))
    await asyncio.sleep(0)
    with pytest.raises(lib.AgentBusy):
        await agent.run("two")
    gate.set()
    assert (await running).text == await agent.query("three") == "yes"
    assert [m.text for m in agent.messages] == ["one", "yes", "three", "yes"]


async def test_run_without_a_prompt_goes_on_or_says_that_there_is_nothing(lib):
    agent = lib.Agent(llm=lib.ScriptedModel(lib.ModelError("down", status=503), "up"))
    with pytest.raises(ValueError):
        await agent.run()
    with pytest.raises(lib.ModelError):
        await agent.run("hi")
    assert (await agent.run()).text == "up"
    with pytest.raises(ValueError):
        await agent.run()


async def test_any_history_is_a_conversation(lib):
    def asked(name):
        return lib.AssistantMessage(tool_calls=(lib.ToolCall("same", name),))

    history = [
        lib.SystemMessage("another prompt"),
        lib.ToolMessage("nobody", "a", "a result without a call"),
        lib.UserMessage("one"),
        *(asked("a"), lib.ToolMessage("same", "a", "first")),
        lib.AssistantMessage(""),
        *(asked("b"), lib.ToolMessage("same", "b", "second")),
        *(lib.UserMessage("two"), asked("c")),
    ]
    async with OpenAIDouble(["fine"], system="mine") as server:
        settings = {"system_prompt": "mine", "tools": [lib.tool(no_arguments)]}
        agent = lib.Agent(llm=model_of(lib, server), **settings)
        agent.load_history(history)
        assert (await agent.run("three")).text == "fine"
    assert server.refusals == []
    results = [m["content"] for m in server.requests[0]["messages"] if m["role"] == "tool"]
    assert results[:2] == ["first", "second"]
    agent.clear_history()
    assert agent.messages == []


def no_arguments() -> str:
    """Nothing"""
    return ""


# ---- tools


async def test_plain_functions_run_in_daemon_threads(lib):
    threads = []
    where = lib.tool("Say where.", name="where")(lambda: threads.append(threading.current_thread()))
    await lib.Agent(llm=lib.ScriptedModel(lib.call("where"), "ok"), tools=[where]).run("go")
    assert threads[0] is not threading.main_thread()
    assert threads[0].daemon


@pytest.mark.parametrize("error", [StopIteration("enough"), ValueError(), RuntimeError("\ud800")])
@pytest.mark.parametrize("is_async", [True, False])
async def test_every_failure_is_a_result(lib, error, is_async):
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    fails = lib.tool("Fail", name="fail")(fail_async if is_async else fail)
    agent = lib.Agent(llm=lib.ScriptedModel(lib.call("fail"), "ok"), tools=[fails])
    assert (await agent.run("go")).text == "ok"
    assert agent.messages[2].is_error
    assert agent.messages[2].text.encode()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ('{"a": "x"}', "a: Input should be a valid integer"),
        ("{}", "a: Field required"),
        ('{"a": 1, "b": 2}', "'b'"),
        ('{"a": 1, "db": "mine"}', "'db': there is no such argument"),
    ],
)
async def test_bad_arguments_are_told_and_run_nothing(lib, arguments, told):
    ran = []

    def get_db():
        ran.append("db")

    @lib.tool("Act")
    async def act(a: int, db: object = lib.Depends(get_db)) -> None:
        ran.append(a)

    async with OpenAIDouble([calls(("act", arguments)), "sorry"]) as server:
        agent = lib.Agent(llm=model_of(lib, server), tools=[act])
        assert (await agent.run("go")).text == "sorry"
    assert server.refusals == []
    assert told in agent.messages[2].text
    assert ran == []
    with pytest.raises(lib.ToolError):
        act.validate(arguments)
    assert lib.tool(no_arguments).validate("") == {}


async def test_whatever_the_model_and_its_tools_write_no_request_is_refused(lib):
    @lib.tool("Bad text")
    async def bad(deep: bool) -> object:
        return {"a": ["\ud83d"]} if deep else "\ud83d half \ud83d\ude00"

    odd_names = calls(("no such: tool", {}), ("x" * 80, {}))
    odd_ids = Reply(calls=[("bad", {"deep": True}, one) for one in ("same", "same", "x" * 60, "")])
    script = [odd_names, odd_ids, odd_ids, calls(("bad", {"deep": False})), "ok \ud83d", "again"]
    async with OpenAIDouble(script) as server:
        agent = lib.Agent(llm=model_of(lib, server), tools=[bad], system_prompt="\udc00 system")
        result = await agent.run("\udcff prompt")
        assert result.text.encode()
        assert (await agent.run("and?")).text == "again"
    assert server.refusals == []
    assert "bad" in agent.messages[2].text, "the tools that there are"
    assert any("😀" in message.text for message in agent.messages)
    assert server.connections == 1
    assert server.headers[0]["authorization"] == "Bearer k"
    assert (result.usage.input_tokens, result.usage.total_tokens) == (50, 75)


def test_the_schema_is_that_of_the_signature(lib):
    class Place(BaseModel):
        city: str

    @lib.tool
    def go(to: Place, how: str = "train") -> None:
        """Go somewhere.

        Args:
            how: By which means.
        """

    schema = go.parameters
    assert go.description == "Go somewhere."
    assert (schema["type"], schema["required"]) == ("object", ["to"])
    assert schema["additionalProperties"] is False
    how = {"type": "string", "default": "train", "description": "By which means."}
    assert schema["properties"]["how"] == how
    assert go.validate('{"to": {"city": "Rome"}}')["to"] == Place(city="Rome")
    with pytest.raises(TypeError, match="needs a type annotation"):
        lib.tool("Nothing", name="nothing")(lambda x: x)


async def test_a_timeout_is_told(lib):
    @lib.tool("Wait", timeout=0.01)
    async def wait() -> None:
        await asyncio.Event().wait()

    agent = lib.Agent(llm=lib.ScriptedModel(lib.call("wait"), "ok"), tools=[wait])
    await agent.run("go")
    assert agent.messages[2].text.startswith("TimeoutError: ")
    assert "it may have had effects" in agent.messages[2].text


async def test_dependencies_open_once_and_close_last_in_first_out(lib):
    told = []

    def base():
        told.append("open base")
        yield "base"
        told.append("close base")

    async def left(it: Annotated[str, lib.Depends(base)]):
        told.append(f"open left on {it}")
        yield "left"
        told.append("close left")

    async def right(it: str = lib.Depends(base)) -> str:
        return f"right on {it}"

    @lib.tool("Act")
    async def act(
        a: int,
        one: str = lib.Depends(left),
        two: str = lib.Depends(right),
        agent: object = lib.Depends(lib.current_agent),
        call: object = lib.Depends(lib.current_call),
    ) -> str:
        told.append("run")
        return f"{one}, {two}, {agent is it}, {call.arguments}"

    assert list(act.parameters["properties"]) == ["a"]
    it = lib.Agent(llm=lib.ScriptedModel(lib.call("act", a=1), "ok"), tools=[act])
    await it.run("go")
    assert it.messages[2].text == 'left, right on base, True, {"a":1}'
    assert told == ["open base", "open left on base", "run", "close left", "close base"]
    script = lib.ScriptedModel(lib.call("act", a=1), "ok")
    it = lib.Agent(llm=script, tools=[act], dependency_overrides={base: lambda: "fake"})
    await it.run("go")
    assert "right on fake" in it.messages[2].text


async def test_a_dependency_sees_the_tools_error_and_cannot_swallow_it(lib):
    told = []

    def connection():
        try:
            yield 1
            told.append("commit")
        except ValueError:
            told.append("rollback")

    @lib.tool("Act")
    async def act(how: str, c: int = lib.Depends(connection)) -> None:
        if how == "fail":
            raise ValueError("no")
        raise lib.TaskComplete("fine")

    llm = lib.ScriptedModel(lib.call("act", how="fail"), lib.call("act", how="done"))
    agent = lib.Agent(llm=llm, tools=[act])
    result = await agent.run("go")
    assert (result.text, result.stop_reason) == ("fine", "done")
    assert agent.messages[2].is_error
    assert told == ["rollback", "commit"]


# ---- ends


async def test_a_done_tool_ends_the_run_and_its_siblings_are_answered(lib):
    class DoneAgent(lib.DoneTool, lib.Loop):
        pass

    @lib.tool("Finish", name="done")
    async def own_done(answer: int) -> None:
        raise lib.TaskComplete(f"It is {answer}.")

    turn = [lib.call("done", message="It is 5."), lib.call("no_arguments")]
    agent = DoneAgent(llm=lib.ScriptedModel("just text", turn), tools=[lib.tool(no_arguments)])
    result = await agent.run("go")
    assert (result.text, result.stop_reason) == ("It is 5.", "done")
    assert [m.text for m in agent.messages][-2:] == ["It is 5.", ""]
    assert "done" in agent.messages[2].text  # the nudge
    llm = lib.ScriptedModel(lib.call("done", answer=5))
    assert await DoneAgent(llm=llm, tools=[own_done]).query("go") == "It is 5."


async def test_an_output_type_has_its_fields_flat_and_is_validated(lib):
    class Person(BaseModel):
        name: str
        age: int

    wrong, right = lib.call("done", name="Ada", age="old"), lib.call("done", name="Ada", age=36)
    llm = lib.ScriptedModel("She is 36.", wrong, right)
    agent = lib.Agent(llm=llm, output_type=Person)
    result = await agent.run("Who?")
    assert result.value == Person(name="Ada", age=36)
    assert result.stop_reason == "done"
    [done] = llm.requests[0].tools
    assert set(done.parameters["properties"]) == {"name", "age"}
    assert "age: Input should be a valid integer" in agent.messages[-3].text
    llm = lib.ScriptedModel(lib.call("done", result=[1, 2]))
    assert (await lib.Agent(llm=llm, output_type=list[int]).run("go")).value == [1, 2]


async def test_a_stop_ends_the_run_and_leaves_open_what_it_kept_from_starting(lib):
    ran = []

    class Gate(lib.Agent):
        is_open: bool = False

        async def call_tool(self, call):
            if not self.is_open:
                raise lib.Stop("needs_approval")
            return await super().call_tool(call)

    pay = lib.tool("Pay", name="pay")(lambda: ran.append(5))
    agent = Gate(llm=lib.ScriptedModel(lib.call("pay"), "Paid."), tools=[pay])
    result = await agent.run("Pay 5.")
    assert (result.stop_reason, ran) == ("needs_approval", [])
    assert [call.name for call in result.pending] == ["pay"]
    agent.is_open = True
    assert (await agent.run()).text == "Paid."
    assert ran == [5]


# ---- what the model sees


@pytest.mark.parametrize("per_turn", [True, False])
async def test_old_results_are_hidden_and_the_log_keeps_them(lib, per_turn):
    @lib.tool("Look", ephemeral=2)
    async def look(n: int) -> str:
        return f"page {n} " + "word " * 500

    def shown(request):
        return [m.text.startswith("page") for m in request.messages if m.text]

    llm = lib.ScriptedModel(*(lib.call("look", n=n) for n in range(20)), "done")
    agent = lib.Agent(llm=llm, tools=[look], ephemeral_per_turn=per_turn)
    await agent.run("go")
    for before, after in pairwise(map(shown, llm.requests)):
        assert not any(now and not then for then, now in zip(before, after, strict=False))
        assert all(after[1:][-2:])
    last = sum(shown(llm.requests[-1]))
    assert last == 2 if per_turn else last < 12
    assert sum("page" in r.text for r in agent.log if isinstance(r, lib.ToolMessage)) == 20
    llm = lib.ScriptedModel([lib.call("look", n=n) for n in range(12)], "done")
    await lib.Agent(llm=llm, tools=[look], ephemeral_per_turn=per_turn).run("go")
    assert sum(shown(llm.requests[1])) == 12, "what nobody has seen"


async def test_compaction_keeps_the_system_prompt_the_task_and_the_newest_turns(lib):
    @lib.tool("Read")
    async def read(n: int) -> str:
        return f"page {n} " + "word " * 200

    def answer(messages, tools):
        if "summary" in messages[-1].text:
            return lib.AssistantMessage("SUMMARY", usage=lib.Usage(100, 10))
        n = sum(isinstance(record, lib.AssistantMessage) for record in agent.log)
        return lib.call("read", n=n) if n < 12 else "the end " * 200

    llm = lib.ScriptedModel(answer)
    config = lib.CompactionConfig(context_window=2000, threshold_ratio=0.8)
    agent = lib.Agent(llm=llm, tools=[read], system_prompt="SYSTEM", compaction=config)
    assert (await agent.query("the task")).startswith("the end")
    requests = [[message.text for message in request.messages] for request in llm.requests]
    asked = [texts for texts in requests if "summary" in texts[-1]]
    assert all(texts[:2] == ["SYSTEM", "the task"] for texts in requests)
    assert asked
    assert agent.usage.input_tokens == 100 * len(asked)
    first = next(texts for texts in requests if texts[2:3] and texts[2].endswith("SUMMARY"))
    assert "page" in first[-1]
    assert 2 <= sum("page" in text for text in first) <= 3
    assert sum("page" in r.text for r in agent.log if isinstance(r, lib.ToolMessage)) == 12
    for n in range(10):
        await agent.query(f"prompt {n}")
    texts = [message.text for message in llm.requests[-1].messages]
    assert {"the task", "prompt 9"} < {*texts}, "the newest prompt, too"


# ---- cancelled anywhere


class Scenario:
    """A run over the strict double with tools of all kinds, which note what they do."""

    def __init__(self, lib, server):
        self.ledger = Counter()
        self.opened = self.closed = 0
        scenario = self

        async def connection():
            await asyncio.sleep(0)
            scenario.opened += 1
            try:
                yield "c"
            finally:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                scenario.closed += 1

        @lib.tool("Act")
        async def act(name: str) -> str:
            await asyncio.sleep(0)
            scenario.ledger[name] += 1
            await asyncio.sleep(0)
            return name + " word" * 50

        @lib.tool("Act with a connection", timeout=30)
        async def connected(name: str, c: str = lib.Depends(connection)) -> str:
            return await act(name)

        @lib.tool("Act in a thread")
        def plain(name: str) -> str:
            scenario.ledger[name] += 1
            return name

        @lib.tool("Finish")
        async def finish(name: str) -> str:
            await act(name)
            raise lib.TaskComplete("finished")

        self.agent = lib.Agent(
            llm=model_of(lib, server),
            tools=[act, connected, plain, finish],
            system_prompt="the system prompt",
            compaction=lib.CompactionConfig(context_window=1400, threshold_ratio=0.5),
        )

    @staticmethod
    def replies():
        turns = [
            calls(("act", {"name": "a"}), ("connected", {"name": "b"}), ("plain", {"name": "c"})),
            calls(("connected", {"name": "d"}), ("connected", {"name": "e"}), ("act", {})),
            calls(("act", {"name": "f"}), ("act", {"name": "g"})),
            calls(("act", {"name": "h"}), ("finish", {"name": "i"}), ("connected", {"name": "j"})),
        ]
        number = iter(range(1000))

        def answer(request):
            if asks_for_summary(request):
                return "SUMMARY"
            turn = next(number)
            found = turns[turn] if turn < len(turns) else Reply("the end")
            if not found.calls:
                return found
            return Reply(calls=[(*call, f"id_{turn}_{i}") for i, call in enumerate(found.calls)])

        return [answer] * 40


def asks_for_summary(request):
    return "summary" in str(request["messages"][-1]["content"])


async def cancelled_after(lib, steps):
    """One run, cancelled after so many steps of the event loop; True if it had ended by then."""
    async with OpenAIDouble(Scenario.replies(), system="the system prompt") as server:
        scenario = Scenario(lib, server)
        task = asyncio.ensure_future(scenario.agent.run("the task"))
        for _ in range(steps):
            await asyncio.sleep(0)
            if task.done():
                break
        ended = task.done()
        task.cancel()
        await asyncio.wait([task])
        assert ended or task.cancelled(), "a cancel always cancels"
        finished = [r for r in scenario.agent.log if isinstance(r, lib.ToolMessage)]
        server.replies[:] = [
            lambda request: "SUMMARY" if asks_for_summary(request) else "and on"
        ] * 2
        assert (await scenario.agent.run("go on")).text == "and on"
        assert server.refusals == []
        messages = scenario.agent.messages
        shown = {m.tool_call_id: m.text for m in messages if isinstance(m, lib.ToolMessage)}
        assert all(shown.get(r.tool_call_id, r.text) == r.text for r in finished)
    assert max(scenario.ledger.values(), default=0) <= 1, "at most once"
    assert scenario.opened == scenario.closed
    return ended


async def test_cancelled_after_every_step_of_the_event_loop(lib):
    steps = 0
    while not await cancelled_after(lib, steps):
        steps += 1
    assert steps > 50


async def test_a_tool_that_refuses_to_stop_is_left_behind(lib):
    begun, gate = asyncio.Event(), asyncio.Event()

    @lib.tool("Refuse")
    async def refuse() -> str:
        begun.set()
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return "too late"

    script = lib.ScriptedModel(lib.call("refuse"), "on")
    agent = lib.Agent(llm=script, tools=[refuse], cancel_grace=0.01)
    task = asyncio.ensure_future(agent.run("go"))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (await agent.run("go on")).text == "on"
    before = agent.messages
    gate.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert agent.messages == before
    assert "outcome is unknown" in before[2].text


# ---- ChatOpenAI


def test_a_model_works_in_one_event_loop_after_another(lib):
    with OpenAIDouble(["one", "two"]).in_thread() as server:
        agent = lib.Agent(llm=model_of(lib, server))
        assert [str(agent.run_sync("go")), str(agent.run_sync("on"))] == ["one", "two"]


async def test_what_may_pass_is_tried_again_and_any_failure_is_a_model_error(lib):
    class Odd(OpenAIDouble):
        def whole(self, reply):
            return super().whole(reply) if reply.text == "up" else {"choices": []}

    soon = {"retry-after": "0"}
    async with Odd([Failure(503, headers=soon), "up", Failure(400, "no such"), "odd"]) as server:
        assert await lib.Agent(llm=model_of(lib, server)).query("go") == "up"
        with pytest.raises(lib.BadRequest, match="no such"):
            await lib.Agent(llm=model_of(lib, server)).run("go")
        assert len(server.requests) == 3
        with pytest.raises(lib.ModelError, match="choices|no message"):
            await lib.Agent(llm=model_of(lib, server, max_retries=0)).run("go")
    with pytest.raises(lib.ModelError) as caught:
        await lib.Agent(llm=model_of(lib, server, max_retries=0)).run("go")
    assert caught.value.status is None
    assert str(caught.value)


def test_a_key_is_needed_and_never_shown(lib, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        lib.ChatOpenAI("m")
    model = lib.ChatOpenAI("m", api_key="sk-secret")
    assert "secret" not in repr(model) + repr(lib.Agent(llm=model))


# ---- nano.py alone


async def test_a_model_that_takes_no_tools_here_says_what_to_set():
    refusal = (
        "Function tools with reasoning_effort are not supported for gpt-x in "
        "/v1/chat/completions. Please use /v1/responses instead or set reasoning_effort to 'none'."
    )
    async with OpenAIDouble([Failure(400, refusal)]) as server:
        model = nano.ChatOpenAI("m", base_url=server.base_url, api_key="k")
        with pytest.raises(nano.BadRequest, match=re.escape('{"reasoning_effort": "none"}')):
            await nano.Agent(llm=model).run("go")


def run_nano(*arguments, **environment):
    names = ("PATH", "SYSTEMROOT", "TEMP", "COVERAGE_PROCESS_START")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return subprocess.run(
        [sys.executable, str(NANO), *arguments],
        env=kept | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
    )


def test_it_runs_as_a_program():
    done = run_nano("what is 2+3?")
    assert done.stdout.splitlines()[-2:] == ['add {"a":2,"b":3} -> 5', "2 + 3 is 5."]
    assert done.returncode == 0
    script = [calls(("add", {"a": 20, "b": 3})), "It is 23.", Failure(401, "Incorrect API key")]
    with OpenAIDouble(script).in_thread() as server:
        settings = {"OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": "some-model"}
        done, refused = run_nano("20 and 3?", **settings), run_nano("hi", **settings)
    assert done.stdout.splitlines() == ['add {"a": 20, "b": 3} -> 23', "It is 23."]
    assert server.requests[0]["messages"][0]["content"] == "20 and 3?"
    assert server.requests[0]["model"] == "some-model"
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert "Incorrect API key" in refused.stderr
