"""What 0.1.0 does wrong, each as a case that is expected to fail until it is mended."""

import asyncio
import inspect
import os
import pickle
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest

import agentloop as al
from agentloop import Agent, AssistantMessage, Loop, ModelError, ScriptedModel, Stop, Usage, tool
from agentloop.models.scripted import call
from agentloop.tokens import count_tokens
from tests.doubles.fault_server import FaultServer, answer, send, stall, stream_head
from tests.doubles.openai_double import Failure, OpenAIDouble

ROOT = Path(__file__).parent.parent
SCRIPT = Path(sys.executable).with_name("agentloop")
KEY = "sk-very-secret-0123456789"
posix = pytest.mark.skipif(os.name != "posix", reason="needs links, modes or signals")


def gap(reason):
    failures = AssertionError, pytest.fail.Exception
    return pytest.mark.xfail(strict=True, raises=failures, reason=reason)


class Limited(al.Limits, Agent):
    pass


def used(*calls, tokens=1000):
    """A reply that tells how many tokens it took."""
    return AssistantMessage("" if calls else "ok", calls, usage=Usage(tokens, 100))


class Billed(al.Cost, al.Session, Agent):
    pass


@tool(ephemeral=1)
def look(size: int = 4) -> str:
    """Look."""
    return "x" * size


@tool
def pay() -> str:
    """Pay."""
    raise Stop("needs_approval", "It is hunter2.")


@gap("a mistyped setting is ignored")
def test_a_mistyped_setting_is_an_error_at_class_creation():
    with pytest.raises((TypeError, AttributeError), match="max_requests"):
        type("A", (al.Limits, Agent), {"max_request": 3})


class Order(al.Tool):
    def __init__(self, ran, schema):
        super().__init__("order", parameters={"type": "object", **schema})
        self.ran = ran

    async def execute(self, args, overrides=None):
        self.ran.append(args)
        return "ordered"


@gap("a hand-written schema is not checked")
@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": "x"}),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "z"}),
        ({"properties": {"a": {"const": 1}}}, {"a": 2}),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}}, {"a": [1]}),
        ({"properties": {"a": {"type": "object", "required": ["b"]}}}, {"a": {}}),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}),
    ],
)
def test_arguments_that_break_a_hand_written_schema_never_reach_the_tool(schema, arguments):
    ran, llm = [], ScriptedModel(call("order", **arguments), "ok")
    Agent(llm=llm, tools=[Order(ran, schema)]).run_sync("go")
    assert ran == []


@gap("a sub-run is counted at its end, so it runs on when the limit is reached")
async def test_the_requests_of_a_sub_agent_count_as_they_happen():
    counted, sub_model = [], ScriptedModel(*[call("note")] * 15, "found nothing")

    @tool
    def note() -> None:
        """Note what the sub-agent's parent has counted."""
        counted.append(sum(isinstance(record, al.SideRequest) for record in boss.log))

    @tool
    async def ask_sub(agent: Loop = al.Depends(al.current_agent)) -> str:
        """Let a sub-agent work."""
        return (await al.run_counted(agent, Agent(llm=sub_model, tools=[note]), "go")).text

    boss = Limited(llm=ScriptedModel(call("ask_sub"), "done"), tools=[ask_sub], max_requests=2)
    result = await boss.run("go")
    assert result.stop_reason == "limit:requests"
    assert set(counted) <= {1}
    assert len(boss.llm.requests) + len(sub_model.requests) <= 2


@gap("query returns a bad end as if it were the answer")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([AssistantMessage("No.", stop_reason="refused")], "refused"),
        ([AssistantMessage("It is", stop_reason="length")], "limit:length"),
        ([""] * 5, "no_progress"),
        ([call("pay"), "done"], "needs_approval"),
    ],
)
async def test_query_raises_a_bad_end(script, reason):
    assert (await Agent(llm=ScriptedModel(*script), tools=[pay]).run("go")).stop_reason == reason
    with pytest.raises(Exception) as caught:
        await Agent(llm=ScriptedModel(*script), tools=[pay]).query("go")
    assert type(caught.value).__name__ == "RunStopped"
    assert caught.value.result.stop_reason == reason


async def test_no_request_goes_beyond_a_limit_after_a_failed_summary():
    def reply(messages, tools):
        asks_for_summary = "summar" in messages[-1].text.lower()
        return ModelError("down", status=400) if asks_for_summary else call("look", size=90_000)

    agent = type("A", (al.Limits, al.Compaction, Loop), {})(
        llm=ScriptedModel(reply),
        tools=[look],
        compaction=al.CompactionConfig(context_window=50_000, keep_turns=0),
        max_requests=3,
    )
    assert (await agent.run("go")).stop_reason == "limit:requests"
    assert len(agent.llm.requests) <= 3


class Redacting(Loop):
    async def finish(self, result):
        if result := await super().finish(result):
            return al.Result(result.text.replace("hunter2", "***"), None, result.stop_reason)
        return None


@gap("finish() does not see the text of a Stop, nor the last summary")
@pytest.mark.parametrize("script", [[call("pay")], [call("look"), "It is hunter2."]])
async def test_finish_sees_every_text_that_leaves_a_run(script):
    agent = Redacting(llm=ScriptedModel(*script), tools=[pay, look], max_iterations=1)
    assert (await agent.run("go")).text == "It is ***."


@gap("a fork counts the requests of its parent again")
async def test_the_bills_of_an_agent_and_its_fork_add_up():
    prices = {"scripted": al.Price(input=1, output=1)}
    agent = Billed(llm=ScriptedModel(used(), used()), prices=prices)
    await agent.run("go")
    fork = agent.fork()
    await fork.run("go on")
    assert (agent.usage + fork.usage).total_tokens == 2200
    assert agent.cost + fork.cost == pytest.approx(0.0022)


async def test_an_agent_and_the_list_of_sessions_agree_after_clear_history(tmp_path):
    with Billed(llm=ScriptedModel(used()), session="s", session_dir=tmp_path) as agent:
        await agent.run("go")
        agent.clear_history()
        [info] = al.sessions(tmp_path)
        assert agent.usage == info.usage


@gap("max_cost does not take the prices that Cost takes")
async def test_max_cost_alone_is_enough():
    pytest.importorskip("genai_prices")
    for tokens, reason in [(10, "completed"), (1_000_000, "limit:cost")]:
        replies = [used(call("look"), tokens=tokens), "done"]
        llm = ScriptedModel(*replies, model="claude-sonnet-4-5")
        agent = Limited(llm=llm, tools=[look], max_cost=0.05)
        assert (await agent.run("go")).stop_reason == reason


@gap("a model that is named with a prefix has no price")
async def test_a_model_with_its_providers_name_in_front_has_a_price():
    pytest.importorskip("genai_prices")
    names = ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5")
    agents = [Billed(llm=ScriptedModel(used(), model=name)) for name in names]
    for agent in agents:
        await agent.run("go")
    assert agents[0].cost == agents[1].cost


@gap("a local model costs what a provider's model of that name does")
async def test_a_local_model_of_a_known_name_has_no_price():
    pytest.importorskip("genai_prices")
    choice = {"message": {"content": "ok"}, "finish_reason": "stop"}
    reply = {"choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}}
    async with FaultServer([send(answer(reply))]) as server:
        agent = Billed(llm=al.ChatOpenAI("gpt-4o", base_url=server.url))
        await agent.run("go")
        await agent.llm.aclose()
    assert agent.usage.total_tokens == 1100
    assert agent.cost is None


@tool
def read() -> str:
    """Read what stays true."""
    return "y" * 20_000


@gap("stale results are carried for a cache that there is not")
async def test_where_nothing_is_cached_stale_results_go_at_once():
    turns = [(call("look", size=8000), call("read")) for _ in range(4)]
    llm = ScriptedModel(*[used(*calls, tokens=9000 * at) for at, calls in enumerate(turns)], "done")
    await Agent(llm=llm, tools=[look, read]).run("go")
    results = [each for each in llm.requests[-1].messages if isinstance(each, al.ToolMessage)]
    looks = [len(each.text) == 8000 for each in results if each.tool_name == "look"]
    assert looks == [False, False, False, True]


@gap("count_tokens does not know which encoding a model has")
def test_count_tokens_takes_a_models_name():
    assert "model" in inspect.signature(count_tokens).parameters
    assert count_tokens("one two three", model="gpt-5") > 0


@gap("the key is in the locals of a traceback")
@pytest.mark.parametrize("status", [400, 401, 404])
async def test_no_local_of_a_traceback_shows_the_key(status):
    async with OpenAIDouble([Failure(status, "no")]) as server:
        llm = al.ChatOpenAI("m", base_url=server.base_url, api_key=KEY)
        with pytest.raises(ModelError) as caught:
            await llm.ainvoke([])
        await llm.aclose()
    frames = [entry.frame.f_locals for entry in caught.traceback[1:]]
    assert not [text for each in frames for text in map(repr, each.values()) if KEY in text]


@gap("the key is a plain field of a model")
@pytest.mark.parametrize("show", [vars, asdict, pickle.dumps])
def test_no_form_of_a_model_shows_the_key(show):
    assert KEY not in repr(show(al.ChatOpenAI("m", api_key=KEY)))


@posix
@gap("a memory file may be a link to anywhere")
def test_memory_follows_no_link_out_of_its_folder(tmp_path):
    (tmp_path / "secret.txt").write_text("the secret")
    (folder := tmp_path / "project").mkdir()
    (folder / "AGENTS.md").symlink_to(tmp_path / "secret.txt")
    with suppress(ValueError):  # a clear refusal is as good
        agent = al.Memory(llm=ScriptedModel(), memory_dir=folder)
        assert "the secret" not in repr(asyncio.run(agent.context()))


@posix
@gap("a page that is written anew keeps the mode of the old one")
def test_a_page_is_for_the_owner_only_also_where_a_file_was(tmp_path):
    with Billed(llm=ScriptedModel("ok"), session="s", session_dir=tmp_path) as agent:
        agent.run_sync("go")
    page = tmp_path / "s.html"
    page.write_text("old")
    page.chmod(0o644)
    subprocess.run([SCRIPT, "view", tmp_path / "s.jsonl", "-o", page], check=True, timeout=200)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


@posix
@gap("only the last of the folders that are made for sessions is private")
def test_the_folders_of_sessions_are_for_the_owner_only(tmp_path):
    home = tmp_path / "home" / "sessions"
    al.Session(llm=ScriptedModel(), session="s", session_dir=home).close()
    modes = [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("home", "home/sessions")]
    assert modes == [0o700, 0o700]


@gap("bundle --check prints what stands in a file as it is")
def test_bundle_check_prints_no_control_character(tmp_path):
    file = tmp_path / "bundle.py"
    subprocess.run([SCRIPT, "bundle", "loop", "-o", file], check=True, timeout=200)
    shipped = file.read_text(encoding="utf-8")
    file.write_text(shipped.replace("# ==== loop.py ====", "# ==== \x1b]0;owned\x07 ===="))
    command = [SCRIPT, "bundle", "--check", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "owned" in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@gap("a ToolStart that cannot be written is told to the model as the tool's error")
async def test_a_tool_start_that_cannot_be_written_ends_the_run():
    class FullDisk(Agent):
        def record(self, record):
            if isinstance(record, al.ToolStart):
                raise OSError(28, "No space left on device")
            super().record(record)

    with pytest.raises(OSError, match="No space left"):
        await FullDisk(llm=ScriptedModel(call("look"), "done"), tools=[look]).run("go")


async def test_a_wait_for_a_free_connection_ends_with_an_error_of_ours():
    own = httpx.AsyncClient(limits=httpx.Limits(max_connections=1))
    bounds = {"connect_timeout": 0.2, "read_timeout": 0.2, "timeout": None, "max_retries": 0}
    async with FaultServer([send(stream_head()), stall()]) as server, own:
        llm = al.ChatOpenAI("m", base_url=server.url, client=own, **bounds)
        async with own.stream("POST", server.url):  # takes the only connection
            with pytest.raises((ModelError, TimeoutError)) as caught:
                await asyncio.wait_for(llm.ainvoke([]), 5)
    assert isinstance(caught.value, ModelError)


LOADING = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("pydantic"):
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


@posix
@gap("Ctrl-C while the command is loading shows a traceback")
def test_an_interrupt_while_the_command_loads_shows_no_traceback(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LOADING)
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [SCRIPT, "--base-url", "http://127.0.0.1:9", "--prompt", "go"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in done.stderr
