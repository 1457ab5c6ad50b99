"""Agents as an MCP server and as an A2A agent, with the clients of the packages mcp and a2a-sdk."""

import asyncio
from types import SimpleNamespace

import httpx
import pytest

from agentloop import ModelError, ScriptedModel, call
from agentloop.toolkits.ask import ask_user
from tests.recipes import load


def last(messages, tools):
    return messages[-1].text


ANSWERS = [("yes", "paid 5"), ("not today", "not today"), (None, "The user declined.")]


# ---- MCP


async def asked_over_mcp(mode, texts, script, more=()):
    """Return the text of the tool `ask`, and the questions that the user of the client answered."""
    pytest.importorskip("mcp")
    from mcp import Client, types

    recipe, questions = load("mcp_agent"), []

    async def on_question(context, params):
        questions.append(params.message)
        if (text := texts[len(questions) - 1]) is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"text": text})

    clerk = recipe.clerk.fork(llm=ScriptedModel(*script), tools=[recipe.pay, *more])
    server = recipe.server_of(clerk, "clerk", "Pays bills")
    async with Client(server, mode=mode, elicitation_callback=on_question) as client:
        [offered] = (await client.list_tools()).tools
        assert (offered.name, offered.description) == ("ask", "Pays bills")
        result = await client.call_tool("ask", {"prompt": "Pay the bill."})
    return result.content[0].text, questions


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(("text", "word"), ANSWERS)
async def test_the_user_of_an_mcp_client_decides_on_the_calls_of_a_served_agent(mode, text, word):
    answer, [question] = await asked_over_mcp(mode, [text], [call("pay", amount=5), last])
    assert 'pay({"amount":5})' in question
    assert word in answer


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_user_of_an_mcp_client_answers_the_questions_of_a_served_agent(mode):
    asks = call("ask_user", question="How much?"), call("pay", amount=5), last
    answer, questions = await asked_over_mcp(mode, ["5", "yes"], asks, more=[ask_user])
    assert questions[0] == "How much?"
    assert answer == "paid 5"


async def test_an_answer_that_is_sent_again_runs_nothing_again():
    pytest.importorskip("mcp")
    from mcp import Client, types

    recipe = load("mcp_agent")
    llm = ScriptedModel(call("pay", amount=5), last)
    server = recipe.server_of(recipe.clerk.fork(llm=llm), "clerk", "Pays bills")
    async with Client(server, elicitation_callback=recipe.on_question) as client:

        async def ask(responses=None, state=None):
            arguments = {"prompt": "Pay the bill."}
            return await client.session.call_tool(
                "ask",
                arguments,
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
            )

        asked = await ask()
        [call_id] = asked.input_requests
        replies = {call_id: types.ElicitResult(action="accept", content={"text": "yes"})}
        assert (await ask(replies, asked.request_state)).content[0].text == "paid 5"
        assert (await ask(replies, asked.request_state)).is_error
    assert len(llm.requests) == 2


# ---- A2A


@pytest.fixture
async def a2a():
    """The recipe, a client of it, and `say`, which returns the events that answer a message."""
    pytest.importorskip("a2a")
    pytest.importorskip("starlette")
    from a2a import helpers, types
    from a2a.client import ClientConfig, create_client

    recipe = load("a2a_agent")
    http = httpx.AsyncClient(transport=httpx.ASGITransport(recipe.app))
    client = await create_client(recipe.URL, ClientConfig(httpx_client=http))

    async def say(text, task_id=""):
        message = helpers.new_text_message(text, task_id=task_id, role=types.Role.ROLE_USER)
        request = types.SendMessageRequest(message=message)
        return [event async for event in client.send_message(request)]

    return SimpleNamespace(recipe=recipe, client=client, say=say, helpers=helpers, types=types)


def states(events, types):
    updates = [event.status_update for event in events if event.HasField("status_update")]
    return [types.TaskState.Name(update.status.state) for update in updates]


@pytest.mark.parametrize(("text", "word"), ANSWERS[:2])
async def test_an_a2a_client_finds_an_agent_sends_a_task_and_answers_its_question(a2a, text, word):
    asked = await a2a.say("Pay the bill of 5.")
    task_id = asked[0].task.id
    answered = await a2a.say(text, task_id)
    assert states(asked, a2a.types) == ["TASK_STATE_INPUT_REQUIRED"]
    assert states(answered, a2a.types) == ["TASK_STATE_COMPLETED"]
    texts = [a2a.helpers.get_stream_response_text(event) for event in asked + answered]
    assert 'pay({"amount":5})?' in texts
    assert any(word in each for each in texts)
    task = await a2a.client.get_task(a2a.types.GetTaskRequest(id=task_id))
    assert word in a2a.helpers.get_artifact_text(task.artifacts[0])


async def test_two_a2a_clients_answer_a_question_once(a2a):
    from a2a.utils.errors import UnsupportedOperationError

    llm = ScriptedModel(call("pay", amount=5), last, "a second run")
    a2a.recipe.handler.agent_executor.template = a2a.recipe.clerk.fork(llm=llm)
    task_id = (await a2a.say("Pay the bill of 5."))[0].task.id
    answers = await asyncio.gather(*(a2a.say("yes", task_id) for _ in "12"), return_exceptions=True)
    assert any(isinstance(answer, UnsupportedOperationError) for answer in answers)
    assert len(llm.requests) == 2
    task = await a2a.client.get_task(a2a.types.GetTaskRequest(id=task_id))
    assert a2a.helpers.get_artifact_text(task.artifacts[0]) == "paid 5"
    assert task.status.state == a2a.types.TaskState.TASK_STATE_COMPLETED


@pytest.mark.parametrize("kind", [ModelError, LookupError])
async def test_an_a2a_client_reads_no_text_of_an_error(a2a, kind):
    llm = ScriptedModel(kind("http://internal.example refused"))
    a2a.recipe.handler.agent_executor.template = a2a.recipe.clerk.fork(llm=llm)
    events = await a2a.say("Pay the bill of 5.")
    assert states(events, a2a.types)[-1] == "TASK_STATE_FAILED"
    assert kind.__name__ in f"{events}"
    assert "internal.example" not in f"{events}"


async def test_an_a2a_client_cancels_a_task_that_awaits_its_answer(a2a):
    [first, *_] = await a2a.say("Pay the bill of 5.")
    task = await a2a.client.cancel_task(a2a.types.CancelTaskRequest(id=first.task.id))
    assert task.status.state == a2a.types.TaskState.TASK_STATE_CANCELED
    assert not a2a.recipe.handler.agent_executor.open
