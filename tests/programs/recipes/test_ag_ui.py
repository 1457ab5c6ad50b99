"""The recipe for AG-UI, with the npm client of the protocol's authors, in Node and in a browser."""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from agentloop import Agent, ScriptedModel, call
from agentloop.mixins.approval import Rule
from agentloop.toolkits.ask import ask_user
from agentloop.toolkits.subagent import as_tool
from tests import ROOT
from tests.programs.cli.browser import chromium
from tests.recipes import load

pytestmark = pytest.mark.slow
DOUBLES = ROOT / "tests" / "doubles"
CLIENT = DOUBLES / "ag_ui_client.mjs"


def node_modules():
    """Return npm's folder with the client, or skip the test."""
    places = os.environ.get("PATH", "").split(os.pathsep)  # contains npm's .bin, see .ci/run
    folders = [Path(place).parent for place in places]
    found = next((each for each in folders if (each / "@ag-ui" / "client").is_dir()), None)
    if not found or not shutil.which("node"):
        pytest.skip("npm install @ag-ui/client, and add its node_modules/.bin to PATH")
    return found


@contextmanager
def served(app):
    """Serve an application in a thread; yield its address."""
    uvicorn = pytest.importorskip("uvicorn")
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(10)


def test_a_page_approves_edits_denies_and_answers_with_the_client_from_npm():
    pytest.importorskip("fastapi")
    recipe, modules = load("ag_ui_stream"), node_modules()
    pays = call("pay", amount=500)
    asks = call("ask_user", question="To whom?")
    last = recipe.last
    llm = ScriptedModel("Hello.", pays, last, pays, last, pays, last, pays, last, asks, last)
    app = recipe.application(recipe.Clerk(llm=llm, tools=[recipe.pay, ask_user]))
    allow = {"verdict": "allow"}
    turns = [
        ["Hi.", []],
        ["Pay.", [["resolved", allow]]],
        ["Pay.", [["resolved", allow | {"arguments": {"amount": 50}}]]],
        ["Pay.", [["resolved", {"verdict": "respond", "note": "Paid by hand."}]]],
        ["Pay.", [["cancelled", None]]],
        ["Ask.", [["resolved", "To Ada."]]],
    ]
    with served(app) as url:
        command = ["node", CLIENT, url, modules, json.dumps(turns)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    assert done.stderr == ""
    page = json.loads(done.stdout)
    review = [["needs_approval", 'pay({"amount":500})']]
    assert page["asked"] == [review] * 4 + [[["needs_answer", "To whom?"]]]
    assert page["left"] == []
    results = [content for role, content in page["messages"] if role == "tool"]
    words = "paid 500", "paid 50", "Paid by hand.", "Denied", "To Ada."
    assert len(results) == len(words)
    assert all(word in text for word, text in zip(words, results, strict=True))
    roles = [role for role, _ in page["messages"]]
    assert roles == ["user", "assistant"] + ["user", "assistant", "tool", "assistant"] * 5


async def test_a_page_sends_its_answers_again_after_one_was_refused():
    recipe = load("ag_ui_stream")
    llm = ScriptedModel([call("pay", amount=500), call("pay", amount=600)], recipe.last)
    agent = recipe.Clerk(llm=llm, tools=[recipe.pay])
    assert (await agent.run("Pay twice.")).stop_reason == "needs_approval"
    ids = [waiting.id for waiting in agent.pending]

    async def resume(*payloads):
        entries = [
            {"interruptId": id, "status": "resolved", "payload": payload}
            for id, payload in zip(ids, payloads, strict=True)
        ]
        lines = [line async for line in recipe.ag_ui_stream(agent, None, resume=entries)]
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    allow = {"verdict": "allow"}
    *_, refused = await resume(allow, allow | {"arguments": {"amount": "many"}})
    assert (refused["type"], refused["code"]) == ("RUN_ERROR", "invalid_answer")
    assert "integer" in refused["message"], "the page can say why"
    events = await resume(allow, allow | {"arguments": {"amount": 5}})
    results = [each["content"] for each in events if each["type"] == "TOOL_CALL_RESULT"]
    assert [text.splitlines()[-1] for text in results] == ["paid 500", "paid 5"]
    *_, again = await resume(allow, allow)
    assert "pending" in again["message"]


async def test_a_page_that_answers_twice_in_one_request_decides_once():
    recipe = load("ag_ui_stream")
    llm = ScriptedModel(call("pay", amount=500), recipe.last)
    agent = recipe.Clerk(llm=llm, tools=[recipe.pay])
    [waiting] = (await agent.run("Pay.")).pending
    entry = {"interruptId": waiting.id, "status": "resolved", "payload": {"verdict": "allow"}}
    lines = [line async for line in recipe.ag_ui_stream(agent, None, resume=[entry, entry])]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    [result] = [each["content"] for each in events if each["type"] == "TOOL_CALL_RESULT"]
    assert result == "paid 500"


@pytest.mark.parametrize(
    "wrong",
    [
        {"threadId": None},
        {"messages": []},
        {"messages": ["hi"]},
        {"resume": [{"status": "resolved"}]},
        {"resume": ["yes"]},
    ],
)
async def test_a_malformed_request_is_refused(wrong):
    pytest.importorskip("fastapi")
    recipe = load("ag_ui_stream")
    posted = {"threadId": "t", "runId": "r", "messages": [{"role": "user", "content": "Hi."}]}
    transport = httpx.ASGITransport(recipe.application(recipe.clerk))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.post("/", json=posted | wrong)).status_code == 422
        assert (await client.post("/", json=posted)).status_code == 200


def bundled(modules):
    """Return the page's script with the client, as one file for a browser."""
    if not shutil.which("esbuild"):
        pytest.skip("npm install esbuild, and add its node_modules/.bin to PATH")
    command = ["esbuild", DOUBLES / "ag_ui_page.mjs", "--bundle", "--format=esm"]
    environment = os.environ | {"NODE_PATH": str(modules)}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_person_decides_in_a_browser_with_the_client_from_npm():
    pytest.importorskip("fastapi")
    from fastapi.responses import HTMLResponse, Response

    recipe, script = load("ag_ui_stream"), bundled(node_modules())
    pays, last = call("pay", amount=500), recipe.last
    clerk = Agent(llm=ScriptedModel(pays, last), tools=[recipe.pay])
    steps = [pays, last] * 4 + [call("ask_user", question="To whom?"), last]
    steps += [call("desk", prompt="Pay."), last]
    tools = [recipe.pay, ask_user, as_tool(clerk, "desk", "Pays")]
    rules = [Rule("allow", "desk")]
    app = recipe.application(
        recipe.Clerk(llm=ScriptedModel(*steps), tools=tools, approval_rules=rules)
    )
    page = (DOUBLES / "ag_ui_page.html").read_text(encoding="utf-8")
    app.get("/")(lambda: HTMLResponse(page))
    app.get("/page.js")(lambda: Response(script, media_type="text/javascript"))

    turns = [
        ("Allow", "", "paid 500"),
        ("Edit", '{"amount": 50}', "paid 50"),
        ("Deny", "Not today.", "Denied: this call was not allowed and did not run. Not today."),
        ("Respond", "Paid by hand.", "Paid by hand."),
        ("Answer", "To Ada.", "To Ada."),
        ("Allow", "", "paid 500"),  # the call of a sub-agent
    ]
    with served(app) as url, chromium() as browser:
        browser.ask("POST", "/url", url=url)
        browser.click("#prompt")
        browser.press(*"Pay.")
        for number, (verb, note, result) in enumerate(turns):
            browser.click("form button")
            browser.wait(f"return document.body.dataset.runs == {2 * number + 1}")
            browser.sees("legend", "To whom?" if verb == "Answer" else 'pay({"amount":500})')
            if note:
                browser.click("fieldset input")
                browser.press(*note)
            browser.click("fieldset button", verb)
            browser.wait(f"return document.body.dataset.runs == {2 * number + 2}")
            assert browser.find("fieldset") == []
            *_, told, answer = browser.text("#messages").splitlines()
            assert result in told
            assert told.startswith("tool: ")
            assert result in answer
            assert answer.startswith("assistant: ")
        assert browser.text("#messages").count("calls pay") == 4
        assert browser.problems() == []
