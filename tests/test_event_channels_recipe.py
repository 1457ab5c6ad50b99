"""The recipe event_channels: a browser's EventSource takes up where it was."""

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from .cli.browser import Browser

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
RECIPES = Path(__file__).parents[1] / "examples" / "recipes"
APP = """
import sys
sys.path.insert(0, {recipes!r})
import event_channels as recipe
from agentloop import ScriptedModel, call

recipe.agent = recipe.Served(
    llm=ScriptedModel({said!r}), session="page", session_dir={folder!r}
)
app = recipe.app
"""


@contextmanager
def served(folder, said, port):
    """The recipe in a process of its own, its conversation in a session."""
    (folder / "app.py").write_text(
        APP.format(recipes=str(RECIPES), said=said, folder=str(folder / "sessions"))
    )
    program = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port)]
    process = subprocess.Popen(program, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_client_gets_what_came_behind_its_last_event_id(tmp_path):
    port = free_port()
    with served(tmp_path, "More in February.", port), httpx.Client(trust_env=False) as client:
        page = f"http://127.0.0.1:{port}"
        assert client.post(f"{page}/runs", json="How were sales?").json() == "completed"
        for last, first in ((-1, "RunStart"), (0, "UserMessage"), (1, "TextEvent")):
            headers = {"Last-Event-ID": str(last)}
            with client.stream("GET", f"{page}/events", headers=headers) as answer:
                lines = answer.iter_lines()
                assert next(lines) == f"id: {last + 1}"
                assert next(lines) == f"event: {first}"
        assert client.get(f"{page}/events?channel=nonsense").status_code == 422


@pytest.mark.slow
def test_a_browser_misses_nothing_across_a_restart_of_the_server(tmp_path):
    port = free_port()
    page = f"http://127.0.0.1:{port}/"
    look = "return document.getElementById('text').textContent === {!r}"
    with Browser() as browser:
        with served(tmp_path, "More in February.", port):
            browser.ask("POST", "/url", url=page)
            assert browser.wait(look.format("More in February."))
            browser.run("window.texts = [];"
                        "seen.addEventListener('TextEvent', e => texts.push(e.data))")  # fmt: skip
        with served(tmp_path, "Even more in March.", port):
            with httpx.Client(trust_env=False) as client:
                client.post(f"{page}runs", json="And in March?")
            assert browser.wait(look.format("Even more in March."))
            assert len(browser.run("return texts")) == 1, "and nothing comes twice"
