"""First mistakes, as people make them on their first day: each error says what to write.

A mistake is the code that somebody writes; beside it are words of the answer.
"""

import asyncio
import inspect
import logging
import pydoc
import subprocess
import sys
from abc import ABC
from dataclasses import dataclass
from pathlib import Path  # noqa: F401
from typing import Any

import httpx
import pytest

import agentloop  # noqa: F401
from agentloop import (  # noqa: F401
    Agent,
    ChatAnthropic,
    ChatGoogle,
    ChatOpenAI,
    CompactionConfig,
    ImagePart,
    Loop,
    Result,
    ScriptedModel,
    TextDeltaEvent,
    Tool,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
    UsageEvent,
    UserMessage,
    call,
    tool,
)
from agentloop.errors import BadRequest
from agentloop.messages import AssistantMessage
from agentloop.mixins.approval import Approval, Rule  # noqa: F401
from agentloop.toolkits.files import Workspace  # noqa: F401
from agentloop.toolkits.mcp import mcp_tools  # noqa: F401
from agentloop.toolkits.subagent import as_tool


@tool("Search")
def search(query: str) -> str:
    return f"found {query}"


@tool("Weather")
def weather() -> object:
    return object()


@dataclass
class City:
    name: str


class Guarded(Approval, Agent): ...


async def on_event(event: object) -> None: ...


def make(*script: Any, **settings: Any) -> Agent:
    return Agent(llm=ScriptedModel(*(script or ("Hello.",))), **settings)


def model(kind: Any, **parameters: Any) -> Any:
    return kind("m", api_key="k", **parameters)


agent = make()
result = Result("Hello.")
a_call = call("pay", amount=5)
message = UserMessage("Hi")
reply = AssistantMessage("Hello.")
answer = a_call.answer("paid")
stream = agent.query_stream("Hi")
delta = TextDeltaEvent("Hel")
calls = ToolCallEvent("pay", {"amount": 5}, "1")
done = ToolResultEvent("pay", "paid", "1")
llm = model(ChatOpenAI)

MISTAKES = {
    # the agent
    "Agent('gpt-5')": "llm=",
    "Agent(llm='gpt-5')": "ChatOpenAI(",
    "make(instructions='Be brief.')": "system_prompt=",
    "make(model='gpt-5')": "llm=",
    "make(max_turns=3)": "max_iterations=",
    "make(deps_type=str)": "Depends",
    "make(temperature=0)": "ChatOpenAI(",
    "make(tools=search)": "tools=[",
    "make(tools=[print])": "@tool",
    "make(tools=[make()])": "as_tool(agent",
    "make(tools=[search, search])": "mcp_tools(..., name=",
    "make(handoffs=[agent])": "as_tool(agent",
    "make(listeners=[on_event])": "plain function",
    "make(output_type=City('Ulm'))": "must be a type",
    "make(output_type={'name': str})": "must be a type",
    "make(output_type=[int])": "list[int]",
    "make(max_iterations=0)": "greater than 0",
    "make(max_iterations='5')": "integer",
    "make(approval_mode='ask')": "class MyAgent(Approval, Agent)",
    "make(session='ada')": "class MyAgent(Session, Agent)",
    "make(max_cost=1)": "class MyAgent(Limits, Agent)",
    "make(verbose=True)": "listeners=[print]",
    "make(memory=[])": "Session",
    "make(listeners=print)": "listeners=[print]",
    "make(compaction=False)": "CompactionConfig(",
    "make(compaction=10_000)": "CompactionConfig(",
    "make(context_budget='16k')": "integer",
    "make(dependency_overrides=[print])": "by dependency",
    "make(system_prompt=None)": "a function that gets the agent",
    "make(tools=None)": "tools=[search]",
    "make(tool_choice={'type': 'function'}, tools=[search])": '"auto"',
    "make(tool_choice='any', tools=[search]).run_sync('Hi')": "'required'",
    "make(require_approval=['pay'])": 'Rule("ask"',
    "make(session_id='ada')": 'session="ada"',
    "make(max_execution_time=5)": "max_seconds=60",
    "make(reset_tool_choice=True)": "leave it out",
    "make(additional_authorized_imports=['os'])": "code_mode.py",
    "make(final_answer_checks=[print])": "override `finish`",
    "Guarded(llm=ScriptedModel(), approval_rules=['search'])": "Rule(",
    "Guarded(llm=ScriptedModel(), approval_rules=[Rule('search', 'allow')])": "'allow', 'ask'",
    "Guarded(llm=ScriptedModel(), approval_rules={'search': 'allow'})": "a list of rules",
    "Guarded(llm=ScriptedModel(), approval_callback=True)": "(call, why)",
    # its methods
    "agent.chat.completions.create(messages=[])": "run_sync(prompt)",
    "agent.with_config({'tags': []})": "agent.fork(",
    "agent.get_state()": "agent.log",
    "agent.approve('1')": "agent.decide(",
    "agent.visualize()": "agentloop view",
    "agent.to_cli_sync()": "recipe",
    "agent.run_stream_sync('Hi')": "query_stream",
    "agent.clone(name='x')": "agent.fork(",
    "agent.fork(instructions='Be brief.')": "system_prompt=",
    "agent.decide('1', 'allow')": "agent.pending",
    "agent.run_sync('Hi', usage_limits=5)": "Limits",
    "agent.run_sync('Hi', reset=True)": "agent.clear_history()",
    "agent.run_sync('Hi', instructions='Be brief.')": "system_prompt=",
    "agent.run_sync(input='Hi')": "prompt first",
    "agent.run_sync([{'role': 'user', 'content': 'Hi'}])": "text",
    "agent('Hi')": "run_sync(prompt)",
    "agent.invoke('Hi')": "run_sync(prompt)",
    "agent.kickoff()": "run_sync(prompt)",
    "agent.run_stream('Hi')": "query_stream",
    "agent.add_message(message)": "load_history",
    "agent.history": "agent.messages",
    "agent.cancel()": "agent.interrupt()",
    "agent.model": "agent.llm",
    "agent.last_message": "run()",
    "agent.tool(search)": "@tool",
    "agent.load_history(['Hi'])": "UserMessage(",
    "agent.load_history('Hi')": "not 'Hi'",
    "agent.load_history(message)": "[message]",
    "agent.messages.append(message)": "agent.load_history(",
    "agent.run_sync('')": "prompt",
    "agent.run_sync('Hi', deps=5)": "dependency_overrides=",
    "agent.run_sync('Hi', max_turns=5)": "max_iterations=",
    "await_(agent.run('Hi', message_history=[]))": "agent.load_history(",
    "await_(agent.run('Hi', output_type=City))": "agent.run_as(City, prompt)",
    "agent.query_stream('Hi', model='gpt-5')": "agent.fork(llm=",
    "agent.run_sync('Hi', promt='Hi')": "did you mean prompt?",
    "agent.run_sync('Hi', colour='red')": "help(Agent)",
    "agent.run_sync(UserMessage('Hi'))": "text",
    "make().run_sync()": "prompt",
    # the result of a run
    "result.output": "result.text",
    "result.final_output": "result.text",
    "result.content": "result.text",
    "result['output']": "result.text",
    "result.messages": "agent.messages",
    "result.tool_calls": "result.pending",
    "result.cost": "Cost",
    "result.usage.prompt_tokens": "usage.input_tokens",
    # calls, messages and events
    "a_call.args": "call.parsed",
    "a_call.function.arguments": "call.name",
    "a_call.input": "call.parsed",
    "message['content']": ".content",
    "message.tool_calls": "AssistantMessage",
    "reply.function_call": "message.tool_calls",
    "reply.reasoning_content": "message.thinking",
    "reply.choices[0]": "message.text",
    "answer.name": "message.tool_name",
    "answer.result": "message.content",
    "message.model_dump()": "dump_record(",
    "delta.text": "event.content",
    "delta.type": "isinstance(event, TextDeltaEvent)",
    "calls.name": "event.tool",
    "calls.arguments": "event.args",
    "done.content": "event.result",
    "UsageEvent(Usage()).input_tokens": "event.usage",
    # the stream
    "await_(stream)": "await agent.run(prompt)",
    "[*stream]": "async for",
    "stream.__enter__()": "async with",
    "stream.text": "stream.result",
    "stream.text_stream": "async for",
    # tools
    "tool('search', 'Search the web')": "name=",
    "tool('Wait', name='f', timeout='10s')(lambda: 5)": "seconds",
    "tool(lambda: 5)": "needs a description",
    "tool('Add')(lambda a, b: a + b)": "type annotation",
    "tool('Five')(lambda: 5)": "name=",
    "tool('Pay', requires_approval=True)": "Approval",
    "tool('Search', name='search the web')(lambda: 5)": "letters",
    "tool('Search', name='f')(lambda a: a)": "type annotation",
    "search.invoke('x')": "call the function",
    "search.args_schema": "parameters",
    "as_tool(agent, 'ask')": "description",
    "as_tool([agent], 'ask', 'Ask')": "one agent",
    "as_tool(agent, 'ask me', 'Ask')": "letters",
    "make(tools=[mcp_tools('http://localhost/mcp')])": "async with mcp_tools",
    "make(tools=[Workspace()])": "toolkit.tools",
    "make(tools=[{'type': 'function', 'function': {}}])": "@tool",
    "tool('Search', args_schema=City)": "signature",
    "Workspace(Path('/nowhere'))": "/nowhere",
    # models
    "ChatOpenAI()": "model",
    "ChatOpenAI('claude-sonnet-5', api_key='k')": "ChatAnthropic",
    "model(ChatOpenAI, base_url='localhost:11434')": "http",
    "model(ChatOpenAI, base_url='http://localhost/v1/chat/completions')": "/v1",
    "model(ChatAnthropic, max_completion_tokens=5)": "max_tokens=",
    "model(ChatGoogle, max_tokens=5)": "max_output_tokens=",
    "model(ChatOpenAI, system='x')": "Agent(",
    "llm.invoke('Hi')": "Agent(llm=llm)",
    "llm.responses.create(input='Hi')": "run_sync(prompt)",
    "model(ChatOpenAI, n=2)": "agent.fork()",
    "model(ChatOpenAI, tools=[search])": "tools=[search]",
    "ScriptedModel({'content': 'Hi'}) and Agent(llm=ScriptedModel({})).run_sync('Hi')": "call(",
    "llm.bind_tools([search])": "tools=[search]",
    "llm.stream('Hi')": "query_stream",
    # mixins and parts
    "Guarded(llm=ScriptedModel(), approval_callback=lambda call: True)": "(call, why)",
    "Guarded(llm=ScriptedModel(), approval_mode='yolo')": "'auto'",
    "agentloop.Approval": "agentloop.mixins.approval",
    "agentloop.RunContext": "Depends",
    "agentloop.Runner.run_sync(agent, 'Hi')": "run_sync(prompt)",
    "agentloop.function_tool": "@tool",
    "agentloop.ChatBedrock": "base_url=",
    "agentloop.RunConfig": "help(Agent)",
    "ImagePart('cat.png')": "read_bytes()",
}


def await_(value: Any) -> object:
    async def main() -> object:
        return await value

    return asyncio.run(main())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_mistake_is_answered_with_what_to_write(mistake: str) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError, ImportError, OSError)) as caught:
        eval(mistake)
    assert MISTAKES[mistake] in str(caught.value)


def test_tools_may_be_appended() -> None:
    one, other = make(call("search", query="x"), "Found."), make()
    one.tools.append(search)  # type: ignore
    assert one.run_sync("Hi").text == "Found."
    assert not other.tools


def test_methods_that_answer_keywords_keep_their_signatures() -> None:
    for name in ("run", "run_sync", "query", "query_stream"):
        method = getattr(Agent, name)
        assert inspect.signature(method) == inspect.signature(getattr(Loop, name))
        assert inspect.iscoroutinefunction(method) == (name in ("run", "query"))


def test_a_run_without_text_prints_why_it_ended() -> None:
    guarded = Guarded(llm=ScriptedModel(call("search", query="x")), tools=[search])
    assert str(guarded.run_sync("Hi")) == "[needs_approval: search]"
    assert str(Result("", stop_reason="max_iterations")) == "[max_iterations]"
    assert str(Result("Hello.")) == "Hello."


def test_the_model_and_the_log_learn_that_a_tool_returned_an_object(caplog: Any) -> None:
    agent = make(call("weather"), "Sorry.", tools=[weather])
    agent.run_sync("Hi")
    assert "return text, a dict" in agent.messages[2].text
    assert "return text, a dict" in caplog.text
    assert "object at" not in agent.messages[2].text


def test_a_callback_that_takes_arguments_for_a_dict_learns_of_parsed(caplog: Any) -> None:
    def approve(call: Any, why: str) -> bool:
        return bool(call.arguments["query"] == "x")

    guarded = Guarded(
        llm=ScriptedModel(call("search", query="x"), "Sorry."),
        tools=[search],
        approval_callback=approve,
    )
    guarded.run_sync("Hi")
    assert "call.parsed is a dict" in caplog.text


def test_the_signature_begins_with_the_required_settings() -> None:
    assert next(iter(inspect.signature(Agent).parameters)) == "llm"


def test_a_repr_of_settings_shows_numbers_only() -> None:
    assert repr(CompactionConfig()) == "CompactionConfig()"
    assert repr(CompactionConfig(threshold_ratio=0.5)) == "CompactionConfig(threshold_ratio=0.5)"


def test_python_without_docstrings_runs_agents_and_the_command() -> None:
    program = (
        "from agentloop import *\n"
        "add = tool('Add', name='add')(lambda: 3)\n"
        "print(Agent(llm=ScriptedModel(call('add'), '3'), tools=[add]).run_sync('Hi'))"
    )
    python = [sys.executable, "-OO"]
    assert subprocess.check_output([*python, "-c", program], text=True) == "3\n"
    for words in (["--help"], ["view", "--help"], ["bundle", "--help"]):
        [help_text, without] = (
            subprocess.check_output([*command, "-m", "agentloop", *words], text=True)
            for command in ([sys.executable], python)
        )
        assert help_text == without
        assert " -o " in help_text or "--prompt" in help_text


def test_equal_tools_have_equal_hashes() -> None:
    one, two = (Tool("search", "Search") for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)


def test_logging_at_level_debug_shows_each_request_call_and_result(caplog: Any) -> None:
    caplog.set_level(logging.DEBUG, "agentloop")
    make(call("search", query="private"), "Private.", tools=[search]).run_sync("private")
    lines = [record.getMessage() for record in caplog.records if record.name == "agentloop"]
    words = ["RunStart", "message", "calls search", "ToolStart", "result of search", "reply"]
    for word, line in zip([*words, "RunEnd completed"], lines, strict=True):
        assert word in line
    assert "rivate" not in caplog.text


def test_help_of_agent_is_short_describes_each_setting_and_begins_with_how_to_run_it() -> None:
    lines = pydoc.plain(pydoc.render_doc(Agent)).splitlines()
    assert any("await agent.run(" in line for line in lines[:40])
    for name in inspect.signature(Agent).parameters:
        assert any(line.startswith(f" |  {name}: ") for line in lines), name
    for name in ("run", "query", "call", "decide", "interrupt", "fork", "load_history"):
        assert any(f" {name}(" in line for line in lines), name
    for name in ("add_note(", "fold(", "token_rate =", "max_parallel ="):  # help(Loop) has them
        assert not any(f" {name}" in line for line in lines), name


def test_help_of_functions_names_what_they_take() -> None:
    for function, width in ((Agent.run, 300), (tool, 100), (as_tool, 100)):
        title, *text = pydoc.plain(pydoc.render_doc(function)).splitlines()[2:]
        assert len(title) <= width
        for name in inspect.signature(function).parameters:
            assert name in {"self", "prompt", "more", "options"} or f"{name}" in " ".join(text)


def test_an_agent_may_also_be_an_abstract_class() -> None:
    class Base(Agent, ABC): ...

    assert Base(llm=ScriptedModel("Hello.")).run_sync("Hi").text == "Hello."


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("http://localhost:8080", "base_url='http://localhost:8080/v1'"),
        ("http://me:secret@localhost:8080", "base_url='http://localhost:8080/v1'"),
        ("http://localhost:8080/v1", "api='responses'"),
    ],
)
def test_the_error_for_a_wrong_address_names_what_was_requested(address: str, remedy: str) -> None:
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(404)))
    agent = Agent(llm=model(ChatOpenAI, base_url=address, client=client))
    with pytest.raises(BadRequest, match="http://localhost:8080.*/chat/completions") as caught:
        agent.run_sync("Hi")
    assert remedy in str(caught.value)
    assert "secret" not in str(caught.value)
