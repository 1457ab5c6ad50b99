"""The recipe for AG-UI, with the client of the protocol's authors from npm."""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentloop import ScriptedModel, call
from agentloop.toolkits.ask import ask_user
from tests import ROOT
from tests.recipes import load

pytestmark = pytest.mark.slow
CLIENT = ROOT / "tests" / "doubles" / "ag_ui_client.mjs"


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
