"""First mistakes of people who know another library: each error names what to write."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from agentloop import Agent, ScriptedModel, UserMessage, call, tool
from agentloop.messages import AssistantMessage
from agentloop.models.anthropic import ChatAnthropic
from agentloop.models.google import ChatGoogle
from agentloop.models.openai import ChatOpenAI

openai = partial(ChatOpenAI, "m", api_key="k")
anthropic = partial(ChatAnthropic, "m", api_key="k")
google = partial(ChatGoogle, "m", api_key="k")


def agent(*reply: Any, **settings: Any) -> Agent:
    return Agent(llm=ScriptedModel(*(reply or ("Hello.",))), **settings)


def undecorated(a: int) -> int:
    return a


SETTINGS = {  # a setting in another library's words, and what the message names
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
    "approval_rules": "mixin",
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
MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "no model": (lambda: Agent(**{}), "llm=ChatOpenAI("),
    "a name as model": (lambda: Agent(llm="gpt-5"), "llm=ChatOpenAI("),  # type: ignore
    "a model by position": (lambda: Agent(ScriptedModel()), "llm="),  # type: ignore
    "a tool instead of a list": (lambda: agent(tools=tool(undecorated)), "tools=["),
    "an undecorated tool": (lambda: agent(tools=[undecorated]), "@tool"),
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
    "Anthropic's top_k": (lambda: anthropic(top_k=5), "extra={'top_k'"),
    "Gemini's topP": (lambda: google(topP=0.5), "generation_config={'topP'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_in_other_words_names_the_right_one(name):
    with pytest.raises(TypeError) as caught:
        agent(**{name: 1})
    assert SETTINGS[name] in str(caught.value)
    assert f" {name}: " in str(caught.value)


@pytest.mark.parametrize("name", MODEL_PARAMETERS)
def test_a_models_parameter_in_other_words_names_the_right_one(name):
    with pytest.raises(TypeError) as caught:
        openai(**{name: 1})
    assert MODEL_PARAMETERS[name] in str(caught.value)
    assert f"ChatOpenAI: unknown parameter {name}: " in str(caught.value)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_mistake_names_what_to_write(mistake):
    attempt, remedy = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        attempt()
    assert remedy in str(caught.value)


def test_values_of_unknown_parameters_are_not_shown():
    with pytest.raises(TypeError) as caught:
        ChatOpenAI("m", **{"openai_api_key": "sk-secret"})
    assert "sk-secret" not in str(caught.value)
