"""examples/nano.py and the package keep one set of promises: tests of both run against each.

`lib` is one after the other. Where the package has a test already, nano.py borrows it.
"""

import asyncio
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import threading
import types
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import BaseModel

import agentloop
from agentloop.models.scripted import call

from . import test_depends as depends
from . import test_loop, test_tools
from .doubles.openai_double import Failure, OpenAIDouble, Reply, calls, check
from .promises import test_a_gate_that_errs_denies as gate
from .promises import test_at_most_once as once
from .promises import test_cancelled_anywhere as cancelled
from .promises import test_every_wait_is_bounded as bounded
from .test_loop import TestLoop as Contract
from .test_readme import PROGRAMS

NANO = Path(__file__).parent.parent / "examples" / "nano.py"


def load_nano():
    spec = importlib.util.spec_from_file_location("nano", NANO)
    module = importlib.util.module_from_spec(spec)
    sys.modules["nano"] = module
    spec.loader.exec_module(module)
    return module


nano = load_nano()
package = types.SimpleNamespace(**{name: getattr(agentloop, name) for name in agentloop.__all__})


@pytest.fixture(params=[package, nano], ids=["agentloop", "nano"])
def lib(request):
    return request.param


def model_of(lib, server, **settings):
    return lib.ChatOpenAI("m", base_url=server.base_url, api_key="k", **settings)


def agent_of(lib, *script, **settings):
    """An agent of either; both take the package's calls, in a list."""
    return lib.Agent(llm=lib.ScriptedModel(*script), **settings)


def results_in(lib, messages):
    return [each.text for each in messages if isinstance(each, lib.ToolMessage)]


def no_arguments() -> str:
    """Nothing"""
    return ""


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


# ---- the package's own tests


@pytest.fixture
def borrowed(monkeypatch):
    """Lets modules of tests mean nano.py's classes and functions by the package's names."""

    def accept(messages):  # or raise what the provider would say
        check(nano.write_request("m", messages, [nano.add], "auto"))
        return []

    def tool(description=None, *, parallel=True, **options):
        return nano.tool(description, **options)

    ours = vars(nano) | {"tool": tool, "validate": accept}
    ours |= {"finish": nano.tool("Finish")(test_loop.finish.function)}
    for module in (test_loop, test_tools, depends, gate, once, cancelled, bounded):
        for name in vars(module).keys() & ours.keys():
            if not name.startswith("__"):
                monkeypatch.setattr(module, name, ours[name])
    config = nano.CompactionConfig(context_window=1000, threshold_ratio=0.6)
    monkeypatch.setitem(cancelled.SCENARIOS["compaction"], "compaction", config)


@pytest.mark.usefixtures("borrowed")
class TestNano:
    agent_class = nano.Agent
    make = Contract.make

    async def test_a_call_that_a_stop_prevented_runs_once_it_may(self):
        await gate.test_a_call_that_a_stop_prevented_stays_open_and_runs_once_it_may()

    async def test_a_call_runs_once_however_often_the_run_is_taken_up(self):
        def pay(amount: int) -> None:
            ledger.append(amount)

        ledger = []
        run_once = once.test_a_call_runs_once_however_often_the_run_is_taken_up
        await run_once(nano.tool("Pay")(pay), ledger)

    @pytest.mark.parametrize("go_on", ["a new prompt", None])
    @pytest.mark.parametrize("kind", list(cancelled.SCENARIOS)[:4])
    async def test_cancelled_at_every_turn_of_the_event_loop(self, kind, go_on):
        await cancelled.test_cancelled_at_every_turn_of_the_event_loop(kind, go_on)

    async def test_a_tool_that_refuses_to_stop_is_left_behind(self, caplog):
        await bounded.test_a_cancel_ends_a_run_whose_tool_refuses_to_stop(caplog)

    async def test_the_schema_is_that_of_the_signature(self):
        await test_tools.test_a_bare_decorator_takes_name_and_description_from_the_function()

    async def test_dependencies_are_shared_closed_and_overridden(self):
        await depends.test_an_override_replaces_a_dependency_wherever_it_is_asked_for()
        await depends.test_dependencies_of_dependencies_are_called_once_and_closed_in_turn()


for each in (
    Contract.test_it_calls_tools_until_there_is_an_answer,
    Contract.test_an_empty_reply_is_nudged_three_times_and_then_given_up,
    Contract.test_siblings_of_a_done_call_are_answered_too,
    Contract.test_another_stop_outranks_done,
    Contract.test_a_second_query_at_the_same_time_is_refused_at_once,
    Contract.test_a_new_prompt_closes_open_calls_for_good,
    Contract.test_with_nothing_to_go_on_with_run_says_so,
    Contract.test_what_a_tool_returns_when_it_is_cancelled_is_kept,
    Contract.test_a_tool_gets_its_agent_its_call_and_overrides,
):
    setattr(TestNano, each.__name__, each)


# ---- the loop


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

    agent = agent_of(lib, [call("slow"), call("quick")], "done", tools=[slow, quick])
    await agent.run("go")
    assert results_in(lib, agent.log) == ["quick", "slow"]
    assert results_in(lib, agent.messages) == ["slow", "quick"]


async def test_a_forced_tool_is_forced_once_and_the_last_turn_is_an_answer(lib):
    script = [[call("no_arguments")], [call("no_arguments")], "That is all."]
    settings = {"max_iterations": 2, "tool_choice": "no_arguments"}
    agent = agent_of(lib, *script, tools=[lib.tool(no_arguments)], **settings)
    result = await agent.run("go")
    assert (result.text, result.stop_reason) == ("That is all.", "max_iterations")
    assert [r.tool_choice for r in agent.llm.requests] == ["no_arguments", "auto", "auto"]


async def test_a_reply_that_was_cut_off_runs_no_call_and_is_no_success(lib):
    ran = []
    cut = lib.AssistantMessage(tool_calls=(lib.ToolCall("c1", "write"),), stop_reason="length")
    write = lib.tool("Write", name="write")(lambda: ran.append(1))
    assert await agent_of(lib, cut, "sorry", tools=[write]).query("go") == "sorry"
    assert ran == []
    for word, reason in (("length", "limit:length"), ("refused", "refused")):
        agent = agent_of(lib, lib.AssistantMessage("half", stop_reason=word))
        assert (await agent.run("go")).stop_reason == reason


async def test_any_history_is_a_conversation(lib):
    def asked(name, *results):
        reply = lib.AssistantMessage(tool_calls=(lib.ToolCall("same", name),))
        return [reply, *(lib.ToolMessage("same", name, text) for text in results)]

    history = [
        lib.SystemMessage("another prompt"),
        lib.ToolMessage("nobody", "a", "a result without a call"),
        *(lib.UserMessage("one"), *asked("a", "first"), lib.AssistantMessage("")),
        *(*asked("b", "second"), lib.UserMessage("two"), *asked("c")),
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


# ---- tools


async def test_plain_functions_run_in_daemon_threads(lib):
    threads = []
    where = lib.tool("Say where.", name="where")(lambda: threads.append(threading.current_thread()))
    await agent_of(lib, [call("where")], "ok", tools=[where]).run("go")
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
    agent = agent_of(lib, [call("fail")], "ok", tools=[fails])
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

    asks = lib.AssistantMessage(tool_calls=(lib.ToolCall("1", "act", arguments),))
    agent = agent_of(lib, asks, "sorry", tools=[act])
    assert (await agent.run("go")).text == "sorry"
    assert told in agent.messages[2].text
    assert ran == []
    assert lib.tool(no_arguments).validate("") == {}


async def test_whatever_the_model_and_its_tools_write_no_request_is_refused(lib):
    @lib.tool("Bad text")
    async def bad(deep: bool) -> object:
        return {"a": ["\ud83d"]} if deep else "\ud83d half \ud83d\ude00"

    odd_names = calls(("no such: tool", {}), ("x" * 80, {}), ("bad", "{"), ("bad", "[]"))
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


def test_a_parameter_may_be_a_model_and_needs_a_type(lib):
    class Place(BaseModel):
        city: str

    @lib.tool("Go")
    def go(to: Place, how: str = "train") -> str:
        return how

    assert go.parameters["required"] == ["to"]
    assert go.validate('{"to": {"city": "Rome"}}') == {"to": Place(city="Rome"), "how": "train"}
    assert go(None, how="bus") == "bus"
    with pytest.raises(TypeError, match="needs a type annotation"):
        lib.tool("Nothing", name="nothing")(lambda x: x)


async def test_a_timeout_is_told(lib):
    @lib.tool("Wait", timeout=0.01)
    async def wait() -> None:
        await asyncio.Event().wait()

    agent = agent_of(lib, [call("wait")], "ok", tools=[wait])
    await agent.run("go")
    assert re.match("TimeoutError: .*it may have had effects", agent.messages[2].text)


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
        raise ValueError("no") if how == "fail" else lib.TaskComplete("fine")

    agent = agent_of(lib, [call("act", how="fail")], [call("act", how="done")], tools=[act])
    result = await agent.run("go")
    assert (result.text, result.stop_reason) == ("fine", "done")
    assert agent.messages[2].is_error
    assert told == ["rollback", "commit"]


# ---- ends


async def test_a_done_tool_ends_the_run_after_a_nudge(lib):
    class DoneAgent(lib.DoneTool, lib.Loop):
        pass

    @lib.tool("Finish", name="done")
    async def own_done(answer: int) -> None:
        raise lib.TaskComplete(f"It is {answer}.")

    for tools, arguments in ([], {"message": "It is 5."}), ([own_done], {"answer": 5}):
        llm = lib.ScriptedModel("just text", [call("done", **arguments)])
        agent = DoneAgent(llm=llm, tools=tools)
        result = await agent.run("go")
        assert (result.text, result.stop_reason) == ("It is 5.", "done")
        assert "done" in agent.messages[2].text  # the nudge


async def test_an_output_type_has_its_fields_flat_and_is_validated(lib):
    class Person(BaseModel):
        name: str
        age: int

    wrong, right = call("done", name="Ada", age="old"), call("done", name="Ada", age=36)
    agent = agent_of(lib, "She is 36.", [wrong], [right], output_type=Person)
    result = await agent.run("Who?")
    assert (result.value, result.stop_reason) == (Person(name="Ada", age=36), "done")
    [done] = agent.llm.requests[0].tools
    assert set(done.parameters["properties"]) == {"name", "age"}
    assert "age: Input should be a valid integer" in agent.messages[-3].text
    agent = agent_of(lib, [call("done", result=[1, 2])], output_type=list[int])
    assert (await agent.run("go")).value == [1, 2]


# ---- what the model sees


@pytest.mark.parametrize("per_turn", [True, False])
async def test_old_results_are_hidden_and_the_log_keeps_them(lib, per_turn):
    @lib.tool("Look", ephemeral=2)
    async def look(n: int) -> str:
        return f"page {n} " + "word " * 500

    async def play(*script):
        """What of each request's messages is a page, and the log."""
        agent = agent_of(lib, *script, "done", tools=[look], ephemeral_per_turn=per_turn)
        await agent.run("go")
        requests = agent.llm.requests
        return [[m.text.startswith("page") for m in r.messages if m.text] for r in requests], agent

    looks = [call("look", n=n) for n in range(20)]
    shown, agent = await play(*([look] for look in looks))
    for before, after in pairwise(shown):
        assert not any(now and not then for then, now in zip(before, after, strict=False))
        assert all(after[1:][-2:])
    assert sum(shown[-1]) == 2 if per_turn else sum(shown[-1]) < 12
    assert sum("page" in text for text in results_in(lib, agent.log)) == 20
    shown, _ = await play(looks[:12])
    assert sum(shown[1]) == 12, "what nobody has seen"


async def test_compaction_keeps_the_system_prompt_the_task_and_the_newest_turns(lib):
    @lib.tool("Read")
    async def read(n: int) -> str:
        return f"page {n} " + "word " * 200

    def answer(messages, tools):
        if "summary" in messages[-1].text:
            return lib.AssistantMessage("SUMMARY", usage=lib.Usage(100, 10))
        n = sum(isinstance(record, lib.AssistantMessage) for record in agent.log)
        return [call("read", n=n)] if n < 12 else "the end " * 200

    config = lib.CompactionConfig(context_window=2000, threshold_ratio=0.8)
    agent = agent_of(lib, answer, tools=[read], system_prompt="SYSTEM", compaction=config)
    assert (await agent.query("the task")).startswith("the end")
    requests = [[message.text for message in r.messages] for r in agent.llm.requests]
    asked = [texts for texts in requests if "summary" in texts[-1]]
    assert all(texts[:2] == ["SYSTEM", "the task"] for texts in requests)
    assert asked
    assert agent.usage.input_tokens == 100 * len(asked)
    first = next(texts for texts in requests if texts[2:3] and texts[2].endswith("SUMMARY"))
    assert "page" in first[-1]
    assert 2 <= sum("page" in text for text in first) <= 3
    assert sum("page" in text for text in results_in(lib, agent.log)) == 12
    for n in range(10):
        await agent.query(f"prompt {n}")
    texts = [message.text for message in agent.llm.requests[-1].messages]
    assert {"the task", "prompt 9"} < {*texts}, "the newest prompt, too"


# ---- ChatOpenAI


def test_a_model_works_in_one_event_loop_after_another(lib):
    with OpenAIDouble(["one", "two"]).in_thread() as server:
        agent = lib.Agent(llm=model_of(lib, server))
        assert [str(agent.run_sync("go")), str(agent.run_sync("on"))] == ["one", "two"]


async def test_a_request_can_be_cancelled_at_every_turn_of_the_event_loop(lib):
    async with OpenAIDouble(["yes"] * 200) as server:
        agent, turns, ended = lib.Agent(llm=model_of(lib, server)), 0, False
        while not ended:
            task, turns = asyncio.ensure_future(agent.run("go")), turns + 1
            for _ in range(turns):
                await asyncio.sleep(0)
            ended = task.done()
            task.cancel()
            await asyncio.wait([task])
            assert ended or task.cancelled(), "a cancel always cancels"
            assert (await agent.run("go on")).text == "yes"
    assert server.refusals == []


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
    with pytest.raises(lib.ModelError, match=".") as caught:
        await lib.Agent(llm=model_of(lib, server, max_retries=0)).run("go")
    assert caught.value.status is None


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
        with pytest.raises(nano.BadRequest, match=re.escape('{"reasoning_effort": "none"}')):
            await nano.Agent(llm=model_of(nano, server)).run("go")


def run_nano(*arguments, **environment):
    kept = {name: it for name, it in os.environ.items() if not name.startswith("OPENAI_")}
    command = [sys.executable, str(NANO), *arguments]
    settings = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 30}
    return subprocess.run(command, env=kept | environment, **settings)


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


async def test_a_prompt_that_cannot_be_recorded_leaves_the_agent_free(lib):
    errors = [OSError("full")]

    class Full(lib.Loop):
        def record(self, record):
            if isinstance(record, lib.UserMessage) and errors:
                raise errors.pop()
            super().record(record)

    agent = Full(llm=lib.ScriptedModel("hello"))
    with pytest.raises(OSError, match="full"):
        await agent.run("hi")
    assert (await agent.run("hi")).text == "hello"
