"""Agents as an MCP server and as an A2A agent, with the clients of the packages mcp and a2a-sdk."""

import asyncio

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


@pytest.mark.parametrize(("text", "word"), ANSWERS[:2])
async def test_an_a2a_client_finds_an_agent_sends_a_task_and_answers_its_question(text, word):
    pytest.importorskip("a2a")
    pytest.importorskip("starlette")
    from a2a import helpers, types
    from a2a.client import ClientConfig, create_client

    recipe = load("a2a_agent")
    http = httpx.AsyncClient(transport=httpx.ASGITransport(recipe.app))
    client = await create_client(recipe.URL, ClientConfig(httpx_client=http))
    states, texts, task_id = [], [], ""
    for said in "Pay the bill of 5.", text:
        message = helpers.new_text_message(said, task_id=task_id, role=types.Role.ROLE_USER)
        async for event in client.send_message(types.SendMessageRequest(message=message)):
            task_id = task_id or event.task.id
            texts.append(helpers.get_stream_response_text(event))
            if event.HasField("status_update"):
                states.append(types.TaskState.Name(event.status_update.status.state))
    assert states == ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"]
    assert 'pay({"amount":5})?' in texts
    assert any(word in each for each in texts)
    task = await client.get_task(types.GetTaskRequest(id=task_id))
    assert word in helpers.get_artifact_text(task.artifacts[0])


async def test_two_a2a_clients_answer_a_question_once():
    pytest.importorskip("a2a")
    pytest.importorskip("starlette")
    from a2a import helpers, types
    from a2a.client import ClientConfig, create_client
    from a2a.utils.errors import UnsupportedOperationError

    recipe = load("a2a_agent")
    http = httpx.AsyncClient(transport=httpx.ASGITransport(recipe.app))
    client = await create_client(recipe.URL, ClientConfig(httpx_client=http))
    llm = ScriptedModel(call("pay", amount=5), last, "a second run")
    recipe.handler.agent_executor.template = recipe.clerk.fork(llm=llm)

    async def say(text, task_id=""):
        message = helpers.new_text_message(text, task_id=task_id, role=types.Role.ROLE_USER)
        request = types.SendMessageRequest(message=message)
        return [event async for event in client.send_message(request)]

    task_id = (await say("Pay the bill of 5."))[0].task.id
    answers = await asyncio.gather(*(say("yes", task_id) for _ in "12"), return_exceptions=True)
    assert any(isinstance(answer, UnsupportedOperationError) for answer in answers)
    assert len(llm.requests) == 2
    task = await client.get_task(types.GetTaskRequest(id=task_id))
    assert helpers.get_artifact_text(task.artifacts[0]) == "paid 5"
    assert task.status.state == types.TaskState.TASK_STATE_COMPLETED


async def test_an_a2a_client_reads_no_text_of_a_model_error():
    pytest.importorskip("a2a")
    pytest.importorskip("starlette")
    from a2a import helpers, types
    from a2a.client import ClientConfig, create_client

    recipe = load("a2a_agent")
    http = httpx.AsyncClient(transport=httpx.ASGITransport(recipe.app))
    client = await create_client(recipe.URL, ClientConfig(httpx_client=http))
    llm = ScriptedModel(ModelError("http://internal.example refused"))
    recipe.handler.agent_executor.template = recipe.clerk.fork(llm=llm)
    message = helpers.new_text_message("Pay the bill of 5.", role=types.Role.ROLE_USER)
    request = types.SendMessageRequest(message=message)
    events = [event async for event in client.send_message(request)]
    assert events[-1].status_update.status.state == types.TaskState.TASK_STATE_FAILED
    assert "ModelError" in f"{events}"
    assert "internal.example" not in f"{events}"


async def test_an_a2a_client_cancels_a_task_that_awaits_its_answer():
    pytest.importorskip("a2a")
    pytest.importorskip("starlette")
    from a2a import helpers, types
    from a2a.client import ClientConfig, create_client

    recipe = load("a2a_agent")
    http = httpx.AsyncClient(transport=httpx.ASGITransport(recipe.app))
    client = await create_client(recipe.URL, ClientConfig(httpx_client=http))
    message = helpers.new_text_message("Pay the bill of 5.", role=types.Role.ROLE_USER)
    request = types.SendMessageRequest(message=message)
    events = [event async for event in client.send_message(request)]
    task = await client.cancel_task(types.CancelTaskRequest(id=events[0].task.id))
    assert task.status.state == types.TaskState.TASK_STATE_CANCELED
    assert not recipe.handler.agent_executor.open
