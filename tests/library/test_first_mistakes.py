"""Common mistakes of users of other libraries: each error names the remedy."""

import inspect
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest

import agentloop
from agentloop import (
    Agent,
    Limits,
    Loop,
    Result,
    ScriptedModel,
    StepCompleteEvent,
    SystemMessage,
    Tool,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
    UsageEvent,
    UserMessage,
    call,
    tool,
    waiting,
)
from agentloop.messages import AssistantMessage, remedies
from agentloop.mixins.approval import Approval, Rule
from agentloop.models.anthropic import ChatAnthropic
from agentloop.models.google import ChatGoogle
from agentloop.models.openai import ChatOpenAI
from agentloop.run import EventStream
from tests import ROOT

PARTS = (ROOT / "agentloop" / "PARTS.md").read_text("utf-8")
DOTTED = sorted({*re.findall(r"`((?:mixins|toolkits)\.\w+)\.(\w+)", PARTS)})

openai = partial(ChatOpenAI, "m", api_key="k")
anthropic = partial(ChatAnthropic, "m", api_key="k")
google = partial(ChatGoogle, "m", api_key="k")


def agent(*reply: Any, **settings: Any) -> Agent:
    return Agent(llm=ScriptedModel(*(reply or ("Hello.",))), **settings)


def undecorated(a: int) -> int:
    """Undecorated."""
    return a


class Guarded(Approval, Agent):
    llm = ScriptedModel("Hello.")
    tools = (tool(undecorated),)


SETTINGS = {  # settings of other libraries, and the settings in the message
    "model": "llm=",
    "model_name": "llm=",
    "instructions": "system_prompt=",
    "system": "system_prompt=",
    "system_message": "system_prompt=",
    "max_turns": "max_iterations=",
    "max_steps": "max_iterations=",
    "recursion_limit": "max_iterations=",
    "temperature": "ChatOpenAI(",
    "model_settings": "ChatOpenAI(",
    "name": "as_tool",
    "verbose": "listeners=",
    "callbacks": "listeners=",
    "mcp_servers": "mcp_tools",
    "toolsets": "mcp_tools",
    "result_type": "output_type=",
    "response_format": "output_type=",
    "deps_type": "Depends",
    "handoffs": "as_tool",
    "managed_agents": "as_tool",
    "checkpointer": "Session",
    "messages": "load_history",
    "guardrails": "Approval",
    "tool": "tools",
    "max_iteration": "max_iterations",
    "approval_rules": "Approval from agentloop.mixins.approval",
    "session": "Session",
    "max_cost": "Limits",
    "history_processors": "context",
}
MODEL_PARAMETERS = {
    "top_p": "extra={'top_p'",
    "stop": "extra={'stop'",
    "seed": "extra={'seed'",
    "frequency_penalty": "extra={'frequency_penalty'",
    "response_format": "output_type=",
    "extra_headers": "client=",
    "default_headers": "client=",
    "extra_body": "extra=",
    "openai_api_key": "api_key=",
    "api_base": "base_url=",
    "request_timeout": "timeout=",
    "num_retries": "max_retries=",
    "streaming": "query_stream",
    "system_prompt": "Agent(",
    "temprature": "temperature",
}
AGENT_ATTRIBUTES = {
    "invoke": "run_sync(prompt)",
    "ainvoke": "await agent.run(prompt)",
    "chat": "await agent.query(prompt)",
    "stream": "query_stream",
    "run_stream": "query_stream",
    "iter": "query_stream",
    "batch": "fork()",
    "tool_plain": "@tool",
    "add_tool": "tools=[",
    "output_validator": "output_type=",
    "override": "fork(",
    "history": "agent.messages",
    "reset": "clear_history",
    "as_tool": "agentloop.toolkits.subagent",
    "send": "MessageQueue",
    "cost": "Cost",
}
IMPORTS = {
    "Approval": "agentloop.mixins.approval",
    "Workspace": "agentloop.toolkits.files",
    "mcp_tools": "agentloop.toolkits.mcp",
    "Runner": "run_sync(prompt)",
    "AgentExecutor": "await agent.run(prompt)",
    "create_agent": "Agent(llm=",
    "CodeAgent": "code_mode.py",
    "RunContext": "Depends",
    "ModelRetry": "ToolError",
    "function_tool": "@tool",
    "HumanMessage": "UserMessage",
    "BinaryContent": "ImagePart",
    "AIMessage": "AssistantMessage",
    "OpenAIModel": "ChatOpenAI(",
    "LiteLLMModel": "base_url=",
    "AnthropicModel": "ChatAnthropic(",
    "TestModel": "ScriptedModel(",
    "SQLiteSession": "Session",
    "handoff": "as_tool",
    "UsageLimits": "Limits",
    "MCPServerStdio": "mcp_tools",
}
MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "no model": (lambda: Agent(**{}), "llm=ChatOpenAI("),
    "a name as model": (lambda: Agent(llm="gpt-5"), "llm=ChatOpenAI("),  # type: ignore
    "a model by position": (lambda: Agent(ScriptedModel()), "llm="),  # type: ignore
    "a tool instead of a list": (lambda: agent(tools=tool(undecorated)), "tools=["),
    "an undecorated tool": (lambda: agent(tools=[undecorated]), "@tool"),
    "agent.tool as a decorator": (lambda: agent().tool(undecorated), "@tool"),  # type: ignore
    "a number as prompt": (lambda: agent().run_sync(5), "text"),  # type: ignore
    "a request's message as prompt": (
        lambda: agent().run_sync({"role": "user", "content": "Hi"}),  # type: ignore
        "text",
    ),
    "a message as prompt": (lambda: agent().run_sync(UserMessage("Hi")), "text"),  # type: ignore
    "an empty prompt": (lambda: agent().run_sync(""), "prompt"),
    "a list of replies": (lambda: agent([AssistantMessage("Hi")]).run_sync("Hi"), "ScriptedModel("),
    "a number as reply": (lambda: agent(5).run_sync("Hi"), "call("),
    "a script that is too short": (
        lambda: agent(call("undecorated", a=1), tools=[tool(undecorated)]).run_sync("Hi"),
        "script",
    ),
    "a model of OpenAI for Anthropic": (
        lambda: ChatAnthropic("gpt-5", api_key="k"),
        "this model is for ChatOpenAI",
    ),
    "a model of Anthropic for OpenAI": (
        lambda: ChatOpenAI("claude-sonnet-5", api_key="k"),
        "this model is for ChatAnthropic",
    ),
    "a model of OpenAI for Google": (
        lambda: ChatGoogle("gpt-5", api_key="k"),
        "this model is for ChatOpenAI",
    ),
    "a key of Anthropic for OpenAI": (
        lambda: ChatOpenAI("m", api_key="sk-ant-1"),
        "this api_key is for ChatAnthropic",
    ),
    "a key of OpenAI for Google": (
        lambda: ChatGoogle("m", api_key="sk-proj-1"),
        "this api_key is for ChatOpenAI",
    ),
    "a key of Google for Anthropic": (
        lambda: ChatAnthropic("m", api_key="AIza1"),
        "this api_key is for ChatGoogle",
    ),
    "a verdict in other words": (
        lambda: Guarded(approval_rules=[Rule("block", "undecorated")]).run_sync("Hi"),  # type: ignore
        "deny",
    ),
    "an argument's name in a rule": (
        lambda: Guarded(approval_rules=[Rule("deny", "undecorated", {"b": "1"})]).run_sync("Hi"),
        "write one of",
    ),
    "a tool's name in a rule": (
        lambda: Guarded(approval_rules=[Rule("deny", "Undecorated")]).run_sync("Hi"),
        "'undecorated'",
    ),
    "Anthropic's top_k": (lambda: anthropic(top_k=5), "extra={'top_k'"),
    "Gemini's topP": (lambda: google(topP=0.5), "generation_config={'topP'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_error_for_a_setting_of_another_library_names_the_correct_setting(name):
    with pytest.raises(TypeError) as caught:
        agent(**{name: 1})
    assert SETTINGS[name] in str(caught.value)
    assert f" {name}: " in str(caught.value)


def test_an_error_names_all_unknown_settings_in_their_order():
    with pytest.raises(TypeError, match="name: .*instructions: .*model: use llm="):
        agent(name="Weather", instructions="Be brief.", model="gpt-5")


@pytest.mark.parametrize("name", MODEL_PARAMETERS)
def test_the_error_for_a_parameter_of_another_library_names_the_correct_parameter(name):
    with pytest.raises(TypeError) as caught:
        openai(**{name: 1})
    assert MODEL_PARAMETERS[name] in str(caught.value)
    assert f"ChatOpenAI: unknown parameter {name}: " in str(caught.value)


def test_of_several_unknown_parameters_an_error_names_the_same_one_in_every_process():
    with pytest.raises(TypeError, match="unknown parameter unknown10: "):
        openai(**{f"unknown{number}": 1 for number in range(10, 30)})


@pytest.mark.parametrize("name", AGENT_ATTRIBUTES)
def test_the_error_for_a_method_of_another_library_names_the_correct_method(name):
    with pytest.raises(AttributeError, match=f"Agent has no attribute {name}: ") as caught:
        getattr(agent(), name)
    assert AGENT_ATTRIBUTES[name] in str(caught.value)


def test_the_error_for_a_mistyped_attribute_reaches_another_process_with_its_text():
    with pytest.raises(AttributeError) as caught:
        _ = agent().pendign
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert "did you mean pending" in str(caught.value)


@pytest.mark.parametrize("name", IMPORTS)
def test_the_error_for_an_import_of_another_library_names_the_correct_import(name):
    with pytest.raises(ImportError, match=f"agentloop does not export {name}: ") as caught:
        exec(f"from agentloop import {name}")
    assert IMPORTS[name] in str(caught.value)


@pytest.mark.parametrize(("module", "name"), DOTTED)
def test_the_error_for_an_import_of_a_part_from_agentloop_names_its_module(module, name):
    with pytest.raises(ImportError, match=f"{name}: import it from agentloop.{module}$"):
        exec(f"from agentloop import {name}")


def test_modules_in_error_messages_define_the_imported_names():
    for key, remedy in remedies().items():
        place, name = key.split(".")
        if place == "import" and remedy.startswith("import it from "):
            assert hasattr(import_module(remedy.split()[-1]), name)


EXISTING = {  # the names that exist in each place
    "import": agentloop.__all__,
    "setting": inspect.signature(Loop).parameters,
    "ChatAnthropic": vars(anthropic()),
    "ChatGoogle": vars(google()),
    "ChatOpenAI": vars(openai()),
    "run": inspect.signature(Agent.run).parameters,
    "Settings": dir(agent()),
    "Result": dir(Result()),
    "ToolCall": dir(call("search")),
    "AssistantMessage": dir(AssistantMessage()),
    "ToolMessage": dir(call("search").answer("")),
    "_Content": dir(SystemMessage("")),
    "Usage": dir(Usage()),
    "ToolCallEvent": dir(ToolCallEvent("search", {}, "1")),
    "ToolResultEvent": dir(ToolResultEvent("search", "", "1")),
    "UsageEvent": dir(UsageEvent(Usage())),
    "_Event": dir(StepCompleteEvent("1", "error")),
    "EventStream": dir(EventStream),
    "Tool": dir(Tool("search")),
    "HTTPModel": dir(openai()),
}


@pytest.mark.parametrize("place", sorted({key.split(".")[0] for key in remedies()}))
def test_no_unknown_name_exists_in_its_place(place):
    names = {name for where, name in (key.split(".") for key in remedies()) if where == place}
    assert not names & {*EXISTING.get(place, ())}


def test_no_unknown_name_is_listed_twice_in_its_place():
    sections = re.split(r"(?m)^\[\w+\]$", (ROOT / "agentloop/remedies.txt").read_text("utf-8"))
    for section in sections[1:]:
        names = " ".join(section.strip().splitlines()[::2]).split()
        assert len(names) == len({*names})


def test_a_program_without_mistakes_does_not_read_the_remedies():
    program = """
import sys
read = []
sys.addaudithook(lambda name, args: name == "open" and read.append(str(args[0])))
from agentloop import Agent, ScriptedModel, call, tool

@tool("Add")
def add(a: int, b: int) -> int: return a + b

agent = Agent(llm=ScriptedModel(call("add", a=1, b=2), "3"), tools=[add])
assert agent.run_sync("Hi").text == "3"
assert not hasattr(agent, "unheard_of")
assert getattr(agent.fork().messages[0], "unheard_of", 5) == 5
assert not [path for path in read if path.endswith("remedies.txt")]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_error_for_other_unknown_attributes_is_the_message_of_python():
    class Broken(Agent):
        @property
        def broken(self) -> int:
            return self.llm.missing  # type: ignore

    with pytest.raises(AttributeError, match="unheard_of"):
        _ = agent().unheard_of  # type: ignore
    with pytest.raises(AttributeError, match="missing"):
        _ = Broken(llm=ScriptedModel()).broken


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_for_a_common_mistake_names_the_remedy(mistake):
    attempt, remedy = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        attempt()
    assert remedy in str(caught.value)


def test_errors_do_not_contain_values_of_unknown_parameters():
    with pytest.raises(TypeError) as caught:
        ChatOpenAI("m", **{"openai_api_key": "sk-secret"})
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("model", [ChatAnthropic, ChatGoogle, ChatOpenAI])
def test_the_error_for_a_missing_key_names_its_variable_and_other_keys_that_are_set(
    model, monkeypatch
):
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    own = model.key_variables[-1]
    other = "ANTHROPIC_API_KEY" if model is ChatOpenAI else "OPENAI_API_KEY"
    with pytest.raises(ValueError, match=own) as caught:
        model("m")
    assert other not in str(caught.value)
    monkeypatch.setenv(other, "k")
    with pytest.raises(ValueError, match=f"{own}.*{other} is set"):
        model("m")


def test_the_error_for_a_key_of_another_provider_does_not_contain_the_key():
    with pytest.raises(ValueError, match="api_key") as caught:
        ChatOpenAI("m", api_key="sk-ant-secret")
    assert "secret" not in str(caught.value)


def test_other_servers_accept_any_model_name_and_any_key():
    url = "http://localhost:4000/v1"
    assert ChatOpenAI("claude-sonnet-5", base_url=url, api_key="sk-ant-1").model
    assert ChatAnthropic("gpt-5", base_url=url, api_key="sk-proj-1").model


async def test_a_coroutine_returned_by_a_tool_is_awaited():
    async def look_up() -> str:
        return "found"

    @tool("Search")
    async def search():
        return look_up()

    asker = agent(call("search"), "Hello.", tools=[search])
    await asker.run("Hi")
    assert asker.messages[2].content == "found"


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("timeout", [None, 10])
def test_a_tool_that_blocks_the_event_loop_is_logged(is_async, timeout, monkeypatch, caplog):
    monkeypatch.setattr(waiting, "MAX_BLOCKED", 0.01)

    def block() -> str:
        time.sleep(0.02)
        return "done"

    async def block_the_loop() -> str:
        return block()

    slow = tool("Sleep", name="sleep", timeout=timeout)(block_the_loop if is_async else block)
    agent(call("sleep"), "Done.", tools=[slow]).run_sync("Hi")
    logged = [record.getMessage() for record in caplog.records]
    assert any("tool sleep blocks the event loop" in text for text in logged) == is_async


WRONG_ORDER: dict[str, tuple[type[Loop], dict[str, Any], str]] = {
    "Limits": (Limits, {"max_requests": 1}, "limit:requests"),
    "Approval": (Approval, {}, "needs_approval"),
}


@pytest.mark.parametrize("name", WRONG_ORDER)
def test_a_mixin_listed_after_agent_is_effective(name):
    mixin, settings, stop_reason = WRONG_ORDER[name]
    wrong = type("Wrong", (Agent, mixin), {})
    turns = [call("undecorated", a=1)] * 4
    asker = wrong(llm=ScriptedModel(*turns, "Done."), tools=[tool(undecorated)], **settings)
    assert asker.run_sync("Hi").stop_reason == stop_reason
