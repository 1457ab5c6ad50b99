"""`agentloop` without a terminal: one prompt, pipes, exit statuses, finding a model."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import pytest

from agentloop.cli.config import KEYS, choose, load_tools
from agentloop.cli.loopback import loopback
from agentloop.store import SessionFile, session_path
from tests.cli.held_double import HeldDouble

pytest.importorskip("termios", reason="the environment below is made for POSIX")
from tests.cli.warm import ROOT, environment, run

LEDGER = ("bash", {"command": "touch ran"})
OTHER = ("bash", {"command": "rm -f ran; touch ran2"})
WRITE = ("write", {"path": "new.txt", "content": "new\n"})


AS_MODULE = [sys.executable, "-m", "agentloop"]
AS_SCRIPT = [str(Path(sys.executable).with_name("agentloop"))]


@pytest.mark.parametrize("command", [AS_MODULE, AS_SCRIPT], ids=["module", "script"])
def test_no_file_of_the_current_folder_runs(tmp_path, command):
    for name in ("secrets", "pydantic", "httpx", "argparse", "agentloop/__init__"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__)")
    if command == AS_MODULE:  # Python itself would run that one, before anything of ours
        shutil.rmtree(tmp_path / "agentloop")
    with HeldDouble("answer") as server:
        options = ["--base-url", server.base_url, "--prompt", "go"]
        done = subprocess.run(
            [*command, *options],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert done.stdout == "answer\n", done.stderr


def test_the_answer_goes_to_stdout_and_the_rest_to_stderr(tmp_path):
    (tmp_path / "a").write_text("x")
    with HeldDouble(["I look. ", ("read", {"path": "a"})], "It is x.") as server:
        done = run("--base-url", server.base_url, "--prompt", "what is in a?", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "It is x.\n")
    where = f"m at 127.0.0.1:{server.port}, in {tmp_path}\n"
    assert done.stderr == f"{where}* read a\n  1\tx\n(0 tokens in, 0 out)\n".replace("\t", " ")


def test_piped_input_is_the_prompt_or_added_to_it(tmp_path):
    with HeldDouble("one", "two") as server:
        assert run("--base-url", server.base_url, cwd=tmp_path, stdin="piped").stdout == "one\n"
        options = ["--base-url", server.base_url, "--prompt", "given"]
        assert run(*options, cwd=tmp_path, stdin="piped").stdout == "two\n"
    assert server.requests[0]["messages"][-1]["content"] == "piped"
    assert server.requests[1]["messages"][-1]["content"] == "given\n\npiped"


@pytest.mark.parametrize("yes", [False, True])
def test_without_a_terminal_only_yes_allows(tmp_path, yes):
    with HeldDouble([WRITE], "done") as server:
        options = ["--base-url", server.base_url, "--prompt", "go", *["--yes"] * yes]
        done = run(*options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert (tmp_path / "new.txt").exists() == yes
    assert ("--yes allows" in done.stderr) == (not yes)


def test_exit_statuses(tmp_path):
    with HeldDouble([400, "no"]) as server:
        done = run("--base-url", server.base_url, "--prompt", "go", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "The model failed: ChatOpenAI('m'): 400: " in done.stderr
    done = run("--base-url", "http://127.0.0.1:9", "--prompt", "go", cwd=tmp_path)
    silent = "127.0.0.1:9 does not answer: does it run, and is the URL right?\n"
    assert (done.returncode, done.stderr) == (2, silent)
    with HeldDouble(models=[]) as server:
        done = run("--base-url", server.base_url, "--prompt", "go", cwd=tmp_path)
    assert "lists no models: name one with --model" in done.stderr
    assert run("--base-url", "localhost:1", "--prompt", "go", cwd=tmp_path).returncode == 2
    assert run("--prompt", " ", cwd=tmp_path).returncode == 2
    assert run("--nonsense", cwd=tmp_path).returncode == 2
    done = run("what is this", cwd=tmp_path)
    assert "invalid choice: 'what is this'" in done.stderr
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "130 interrupted" in done.stdout


def test_an_interrupted_answer_is_130(tmp_path):
    hold = threading.Event()
    with HeldDouble(["half", hold]) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentloop", "--base-url", server.base_url, "--prompt", "go"],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.arrived.acquire(timeout=200)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
        hold.set()
    assert (process.returncode, out.strip()) == (130, "")
    assert "Traceback" not in err


def test_without_a_model_it_says_which_ways_there_are(tmp_path):
    done = run("--prompt", "go", "--ports", "{}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    for way in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "--base-url", "agentloop demo"):
        assert way in done.stderr
    assert run("--ports", "{}", cwd=tmp_path).stderr == done.stderr  # empty input comes second
    done = run("--provider", "openai", "--prompt", "go", "--ports", "{}", cwd=tmp_path)
    assert done.stderr == run("--ports", "{}", cwd=tmp_path).stderr


def test_a_local_server_is_found(tmp_path):
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # never answers
        other = stack.enter_context(HeldDouble(listing="<html>"))
        endless = stack.enter_context(HeldDouble(listing="[" * 2_000_000))
        server = stack.enter_context(HeldDouble("found", "again", models=["embed-1", "chat-2"]))
        ports = [silent.getsockname()[1], other.port, endless.port, server.port]
        listed = json.dumps(dict.fromkeys(ports, "it"))
        done = run(
            "--prompt", "go", "--ports", listed, cwd=tmp_path, http_proxy="http://127.0.0.1:9"
        )
        assert (done.returncode, done.stdout) == (0, "found\n"), done.stderr
        done = run("--prompt", "go", "--ports", listed, "--model", "mine", cwd=tmp_path)
        assert done.stdout == "again\n"
    assert [request["model"] for request in server.requests] == ["chat-2", "mine"]


@pytest.fixture
def no_keys(monkeypatch):
    for name in (*KEYS, "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_with_a_key_no_server_is_looked_for(no_keys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k-1234")
    with HeldDouble() as server:
        llm, _ = choose(None, None, None, {server.port: "it"})
        assert llm.base_url == "https://api.openai.com/v1"
        llm, _ = choose(None, None, server.base_url, {})
        assert (llm.base_url, llm.model) == (server.base_url, "m")
        assert [headers.get("authorization") for headers in server.headers] == ["Bearer k-1234"]


def test_the_key_that_is_there_chooses_whose_model_it_is(no_keys, monkeypatch):
    with pytest.raises(ValueError, match="There is no model to talk to"):
        choose(None, None, None, {})
    for key, kind, place in (
        ("GEMINI_API_KEY", "ChatGoogle", "generativelanguage.googleapis.com"),
        ("GOOGLE_API_KEY", "ChatGoogle", "generativelanguage.googleapis.com"),
        ("ANTHROPIC_API_KEY", "ChatAnthropic", "api.anthropic.com"),
    ):
        monkeypatch.setenv(key, "k-1234")
        llm, where = choose(None, None, None, {})
        assert (type(llm).__name__, where) == (kind, f"{place} (there is {key})")
        assert choose(None, "mine", None, {})[0].model == "mine"
    monkeypatch.setenv("OPENAI_API_KEY", "k-5678")
    assert type(choose(None, None, None, {})[0]).__name__ == "ChatOpenAI"
    llm, where = choose("google", None, None, {})
    assert (type(llm).__name__, where) == ("ChatGoogle", "generativelanguage.googleapis.com")
    monkeypatch.delenv("OPENAI_API_KEY")
    llm, where = choose(None, "m", "http://example.org/v1", {})
    assert (type(llm).__name__, where) == ("ChatOpenAI", "example.org")


def test_a_provider_without_its_key_is_named(no_keys, tmp_path):
    with pytest.raises(ValueError, match="ANTHROPIC_API_KEY"):
        choose("anthropic", None, None, {})
    done = run("--provider", "google", "--prompt", "go", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "ChatGoogle needs GOOGLE_API_KEY in the environment\n"


def test_an_answer_over_a_named_wire(tmp_path):
    with loopback([[WRITE], "It is written."]) as base_url:
        options = ["--provider", "openai", "--base-url", base_url, "--model", "x", "--yes"]
        done = run(*options, "--prompt", "go", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "It is written.\n"), done.stderr
    assert (tmp_path / "new.txt").read_text() == "new\n"


# ---- events as JSON


def test_each_event_is_a_line_of_json_and_stdout_has_nothing_else(tmp_path):
    (tmp_path / "a").write_text("x\x9b\u202e")
    with HeldDouble(["I look. ", ("read", {"path": "a"})], "It is x.") as server:
        options = ["--base-url", server.base_url, "--json"]
        done = run(*options, cwd=tmp_path, stdin="what is in a?")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = "text_delta tool_call_delta text step_start tool_call tool_result step_complete"
    kinds = f"{kinds} text_delta text final_response"
    assert [event["type"] for event in events] == kinds.split()
    assert events[0] == {"type": "text_delta", "content": "I look. "}
    read = {"tool": "read", "args": {"path": "a"}, "tool_call_id": "call_1_0"}
    assert events[4] == {"type": "tool_call", **read}
    assert "x\x9b\u202e" in events[5]["result"]
    assert events[-1]["stop_reason"] == "completed"


def test_with_json_errors_and_statuses_stay_as_they_are(tmp_path):
    with HeldDouble([400, "no"], [WRITE], "done") as server:
        options = ["--base-url", server.base_url, "--json", "--prompt", "go"]
        failed = run(*options, cwd=tmp_path)
        denied = run(*options, cwd=tmp_path)
    assert (failed.returncode, failed.stderr.count("The model failed:")) == (1, 1)
    assert failed.stdout == ""
    assert (denied.returncode, "--yes allows" in denied.stderr) == (0, True)
    assert all(json.loads(line)["type"] for line in denied.stdout.splitlines())


# ---- tools of one's own

OWN = """
from agentloop import tool

@tool("Adds two numbers.")
async def add(a: int, b: int) -> int:
    return a + b

@tool("Takes one from another.")
async def sub(a: int, b: int) -> int:
    return a - b

both, also = [add, sub], add
text = "no tool"
"""


def test_tools_of_ones_own_are_called_unasked(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    with HeldDouble([("add", {"a": 2, "b": 3})], "It is 5.") as server:
        options = ["--base-url", server.base_url, "--tools", "mine.py", "--prompt", "go"]
        done = run(*options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "It is 5.\n"), done.stderr
    assert "* add 2 3\n  5\n" in done.stderr
    names = [each["function"]["name"] for each in server.requests[0]["tools"]]
    assert names[-2:] == ["add", "sub"]


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def test_tools_are_all_of_a_file_or_those_that_are_named(in_folder):
    (in_folder / "mine.py").write_text(OWN)
    for where, names in (
        ("mine.py", ["add", "sub"]),
        ("mine:sub", ["sub"]),
        ("mine:both", ["add", "sub"]),
    ):
        assert [each.name for each in load_tools(where)] == names


@pytest.mark.parametrize(
    ("where", "code", "problem"),
    [
        ("t.py", None, "t.py: ModuleNotFoundError: No module named 't'"),
        ("t.py", "x = 1", "t.py: there is no tool; @tool makes one"),
        ("t.py", "\ndef f(:\n", "t.py: SyntaxError: invalid syntax (t.py, line 2)"),
        ("t:ad", OWN, "t:ad: AttributeError: module 't' has no attribute 'ad'"),
        ("t:text", OWN, "t:text: there is no tool; @tool makes one"),
    ],
)
def test_tools_that_cannot_be_had_are_one_line(in_folder, where, code, problem):
    if code is not None:
        (in_folder / "t.py").write_text(code)
    with pytest.raises(ValueError, match=re.escape(problem)):
        load_tools(where)


SERVER = """
import sys
sys.path.insert(0, {!r})
from agentloop import tool
from agentloop.toolkits.mcp import serve

@tool(read_only=True)
def shout(text: str) -> str:
    return text.upper()

serve([shout])
"""


def test_mcp_servers_and_skills_of_the_options_or_the_config_file(tmp_path):
    pytest.importorskip("mcp")
    folder, skill = tmp_path / "agentloop", tmp_path / "agentloop" / "skills" / "tea" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tea\ndescription: Makes tea.\n---\nBoil water.")
    (tmp_path / "server.py").write_text(SERVER.format(str(ROOT)))
    good = {"command": sys.executable, "args": [str(tmp_path / "server.py")]}
    servers = {"mcpServers": {"good": good, "bad": {"command": "no-such-program"}}}
    (folder / "mcp.json").write_text(json.dumps(servers))
    turns = [("good__shout", {"text": "hi"}), ("skill", {"name": "tea"})], "done"
    with HeldDouble(*turns, *turns) as server:
        options = ["--base-url", server.base_url, "--prompt", "go"]
        mcp = ["--mcp", "agentloop/mcp.json", "--skills", "agentloop/skills"]
        named = run(*options, *mcp, "--yes", cwd=tmp_path)
        (folder / "config.toml").write_text(
            'mcp = "mcp.json"\nskills = "skills"\nrules = [["allow", "good__*"]]'
        )
        configured = run(*options, cwd=tmp_path, XDG_CONFIG_HOME=str(tmp_path))
        for done in (named, configured):
            assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
            assert "MCP server 'bad':" in done.stderr
        results = [each["content"] for each in server.requests[-1]["messages"][-2:]]
        assert results[0] == "HI"
        assert results[1].endswith("Boil water.")
        missing = run(*options, "--skills", "nowhere", cwd=tmp_path)
        assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


# ---- sessions


def test_a_session_is_kept_and_goes_on(tmp_path):
    with HeldDouble("one", "two", "three") as server:

        def ask(prompt, *options):
            options = ["--base-url", server.base_url, "--prompt", prompt, *options]
            return run(*options, cwd=tmp_path, HOME=str(tmp_path))

        done = ask("first", "--session", "s")
        assert (done.returncode, done.stdout) == (0, "one\n")
        ask("second", "--session", "s")
        ask("third")
    sent = [[m["content"] for m in request["messages"][1:]] for request in server.requests]
    assert sent == [["first"], ["first", "one", "second"], ["third"]]
    listed = run("--list", cwd=tmp_path, HOME=str(tmp_path)).stdout
    assert listed == f"(No session of {tmp_path} is kept.)\n", "it has a name, and is of no folder"
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["s.jsonl"]


def test_a_session_that_cannot_be_opened_is_one_line(tmp_path):
    home = tmp_path / ".agentloop" / "sessions"
    with HeldDouble() as server, SessionFile(session_path("taken", home)):
        for name, problem in (
            ("taken", "is open in another terminal"),
            ("../x", "cannot be a session's"),
        ):
            options = ["--base-url", server.base_url, "--session", name, "--prompt", "go"]
            done = run(*options, cwd=tmp_path, HOME=str(tmp_path))
            assert (done.returncode, done.stdout) == (2, "")
            assert problem in done.stderr
            assert done.stderr.count("\n") == 1
    assert server.requests == []


def test_it_can_be_imported_where_there_is_no_posix():
    code = (
        "import sys\n"
        "for name in ('termios', 'readline', 'pty', 'tty', 'resource', 'rich', 'prompt_toolkit'):\n"
        "    sys.modules[name] = None\n"
        "import agentloop.cli.main, agentloop.cli.agent, agentloop.cli.demo\n"
        "assert 'httpx' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


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


def test_an_interrupt_while_the_command_loads_shows_no_traceback(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LOADING)
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [*AS_SCRIPT, "--base-url", "http://127.0.0.1:9", "--prompt", "go"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in done.stderr


# ---- what the folder and the config file say


def test_the_model_is_told_the_date_the_folder_the_system_and_agents_md(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Write no comments.")
    with HeldDouble("done") as server:
        run("--base-url", server.base_url, "--prompt", "go", cwd=tmp_path)
    system, memory, prompt = (each["content"] for each in server.requests[0]["messages"])
    assert f"It is {date.today()}. The folder is {tmp_path}, the system " in system
    assert "Write no comments." in memory
    assert prompt == "go"


def test_the_config_file_says_what_the_options_do_not(tmp_path):
    folder = tmp_path / "config" / "agentloop"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(OWN)
    with HeldDouble([WRITE], [LEDGER, OTHER], "done", "again") as server:
        (folder / "config.toml").write_text(
            f'base_url = "{server.base_url}"\nmodel = "from-config"\ntools = ["mine.py"]\n'
            'rules = [["allow", "write"], ["allow", "bash", {command = "touch *"}]]\n'
        )
        env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
        done = run("--prompt", "go", cwd=tmp_path, **env)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert run("--prompt", "go", "--model", "m2", cwd=tmp_path, **env).returncode == 0
    assert [request["model"] for request in server.requests][2:] == ["from-config", "m2"]
    assert {"add", "sub"} < {each["function"]["name"] for each in server.requests[0]["tools"]}
    assert (tmp_path / "new.txt").exists()
    assert (tmp_path / "ran").exists()
    assert not (tmp_path / "ran2").exists()
    (folder / "config.toml").write_text("modle = 1")
    done = run("--prompt", "go", cwd=tmp_path, **env)
    assert done.returncode == 2
    assert re.search("config.toml: .*modle.*do you mean .?model", done.stderr)
