"""`agentloop` without a terminal: one prompt, pipes, exit statuses, a model, the config file."""

import json
import re
import signal
import subprocess
import sys
import threading
from datetime import date
from pathlib import Path

import pytest

from agentloop.cli.config import KEYS, Config, choose
from agentloop.cli.loopback import loopback
from agentloop.store import SessionFile, session_path
from tests.cli.held_double import HeldDouble

pytest.importorskip("termios", reason="the environment below is made for POSIX")
from tests.cli.warm import ROOT, environment, run

LEDGER = ("bash", {"command": "touch ran"})
OTHER = ("bash", {"command": "rm -f ran; touch ran2"})
WRITE = ("write", {"path": "new.txt", "content": "new\n"})
NOWHERE = "--base-url http://127.0.0.1:9 --model m --prompt go"
AS_MODULE = [sys.executable, "-m", "agentloop"]
AS_SCRIPT = [str(Path(sys.executable).with_name("agentloop"))]


def at(server, prompt="go"):
    return ["--base-url", server.base_url, "--model", "m", *["--prompt", prompt] * bool(prompt)]


def said(request, *roles):
    return [each["content"] for each in request["messages"] if each["role"] in roles]


def test_no_file_of_the_current_folder_runs(tmp_path):
    for name in ("secrets", "pydantic", "httpx", "argparse", "agentloop/__init__"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__)")
    with HeldDouble("answer") as server:
        done = subprocess.run(
            [*AS_SCRIPT, *at(server)],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert done.stdout == "answer\n", done.stderr


def test_the_answer_goes_to_stdout_and_the_model_is_told_where_it_works(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "AGENTS.md").write_text("Write no comments.")
    with HeldDouble(["I look. ", ("read", {"path": "a"})], "It is x.", "one") as server:
        done = run(*at(server), cwd=tmp_path, stdin="piped")
        assert (done.returncode, done.stdout) == (0, "It is x.\n")
        where = f"m at 127.0.0.1, in {tmp_path}\n"
        assert done.stderr == f"{where}* read a\n  1 x\n(0 tokens in, 0 out)\n"
        assert run(*at(server, ""), cwd=tmp_path, stdin="piped").stdout == "one\n"
    system, memory, prompt = said(server.requests[0], "system", "user")
    assert f"It is {date.today()}. The folder is {tmp_path}, the system " in system
    assert "Write no comments." in memory
    assert prompt == "go\n\npiped"
    assert said(server.requests[-1], "user")[-1] == "piped"


@pytest.mark.parametrize("yes", [False, True])
def test_without_a_terminal_only_yes_allows(tmp_path, yes):
    with HeldDouble([WRITE], "done") as server:
        done = run(*at(server), *["--yes"] * yes, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert (tmp_path / "new.txt").exists() == yes
    assert ("--yes allows" in done.stderr) == (not yes)


@pytest.mark.parametrize(
    ("options", "status", "shown"),
    [
        ("--base-url localhost:1 --model m --prompt go", 2, "is no http"),
        ("--prompt go", 2, "OPENAI_BASE_URL"),
        ("", 2, "agentloop demo"),
        ("--provider google --prompt go", 2, "GOOGLE_API_KEY"),
        ("--nonsense", 2, "unrecognized arguments"),
        ("what", 2, "invalid choice: 'what'"),
        ("--resume", 2, "No session of"),
        ("--help", 0, "130 interrupted"),
        (f"{NOWHERE} --tools t.py", 2, "t.py: ModuleNotFoundError: No module named 't'"),
        (f"{NOWHERE} --tools none.py", 2, "none.py: there is no tool; @tool makes one"),
        (f"{NOWHERE} --tools wrong.py", 2, "SyntaxError: invalid syntax (wrong.py, line 2)"),
        (f"{NOWHERE} --skills nowhere", 2, "nowhere"),
        (f"{NOWHERE} --session taken", 2, "is open elsewhere"),
        (f"{NOWHERE} --session ../x", 2, "cannot be a session's"),
    ],
)
def test_what_cannot_be_is_said_and_has_its_status(tmp_path, options, status, shown):
    (tmp_path / "none.py").write_text("x = 1")
    (tmp_path / "wrong.py").write_text("\ndef f(:\n")
    with SessionFile(session_path("taken", tmp_path / ".agentloop" / "sessions")):
        done = run(*options.split(), cwd=tmp_path, HOME=str(tmp_path))
    assert done.returncode == status
    assert shown in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert NOWHERE not in options or done.stderr.count("\n") == 1


def test_a_model_that_fails_is_1_and_names_itself_once(tmp_path):
    with HeldDouble([400, "no"]) as server:
        done = run(*at(server), cwd=tmp_path)
        assert run(*at(server, " "), cwd=tmp_path).returncode == 2
    assert (done.returncode, done.stdout) == (1, "")
    assert "m failed: 400: no\n" in done.stderr


def test_an_interrupted_answer_is_130(tmp_path):
    hold = threading.Event()
    with HeldDouble(["half", hold]) as server:
        process = subprocess.Popen(
            [*AS_MODULE, *at(server)],
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


@pytest.mark.parametrize(
    ("keys", "given", "kind", "model", "host"),
    [
        ("OPENAI_API_KEY ANTHROPIC_API_KEY", {}, "ChatOpenAI", "gpt-5-mini", "api.openai.com"),
        ("ANTHROPIC_API_KEY", {}, "ChatAnthropic", "claude-sonnet-5", "api.anthropic.com"),
        ("GEMINI_API_KEY", {"model": "x"}, "ChatGoogle", "x", "generativelanguage.googleapis.com"),
        ("GOOGLE_API_KEY", {"provider": "openai", "base_url": "http://u:p@h:1/v1", "model": "x"},
         "ChatOpenAI", "x", "h"),
        ("ANTHROPIC_API_KEY", {"base_url": "http://h/v1", "model": "x"}, "ChatOpenAI", "x", "h"),
    ],
)  # fmt: skip
def test_the_key_that_is_there_chooses_whose_model_it_is(
    monkeypatch, keys, given, kind, model, host
):
    for name in (*KEYS, "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in keys.split():
        monkeypatch.setenv(name, "k-1234")
    llm, where = choose(Config(**given))
    assert (type(llm).__name__, llm.model, where) == (kind, model, host)


def test_an_answer_over_a_server_of_the_environment(tmp_path):
    with loopback([[WRITE], "It is written."]) as base_url:
        done = run("--yes", "--prompt", "go", cwd=tmp_path, OPENAI_BASE_URL=base_url)
    assert (done.returncode, done.stdout) == (0, "It is written.\n"), done.stderr
    assert (tmp_path / "new.txt").read_text() == "new\n"


# ---- tools of one's own

OWN = """
from agentloop import tool

@tool("Adds two numbers.")
async def add(a: int, b: int) -> int:
    return a + b

@tool("Takes one from another.")
async def sub(a: int, b: int) -> int:
    return a - b

text = "no tool"
"""


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
        files = ["--mcp", "agentloop/mcp.json", "--skills", "agentloop/skills"]
        named = run(*at(server), *files, "--yes", cwd=tmp_path)
        (folder / "config.toml").write_text(
            'mcp = "mcp.json"\nskills = "skills"\nrules = [["allow", "good__*"]]'
        )
        configured = run(*at(server), cwd=tmp_path, XDG_CONFIG_HOME=str(tmp_path))
        for done in (named, configured):
            assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
            assert "Starting the MCP servers" in done.stderr
            assert "MCP server 'bad':" in done.stderr
        results = said(server.requests[-1], "tool")
        assert results[0] == "HI"
        assert results[1].endswith("Boil water.")


# ---- sessions


def test_a_session_is_kept_and_goes_on(tmp_path):
    home = {"cwd": tmp_path, "HOME": str(tmp_path)}
    with HeldDouble("one", "two", "three") as server:
        for prompt, options in (("first", ["s"]), ("second", ["s"]), ("third", [])):
            run(*at(server, prompt), *["--session", *options][: 2 * len(options)], **home)
    sent = [said(each, "user", "assistant") for each in server.requests]
    assert sent == [["first"], ["first", "one", "second"], ["third"]]
    listed = run("--resume", **home).stderr
    assert listed == f"No session of {tmp_path} is kept.\n", "it has a name, and is of no folder"
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["s.jsonl"]


def test_it_can_be_imported_where_there_is_no_posix():
    code = (
        "import sys\n"
        "for name in ('termios', 'readline', 'pty', 'tty', 'resource', 'rich', 'prompt_toolkit'):\n"
        "    sys.modules[name] = None\n"
        "import agentloop.cli.main, agentloop.cli.agent, agentloop.cli.demo\n"
        "assert 'httpx' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# ---- what the folder and the config file say


def test_the_config_file_says_what_the_options_do_not(tmp_path):
    folder = tmp_path / "config" / "agentloop"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(OWN)
    (folder / "more.py").write_text("from mine import sub as also")
    go = {"cwd": tmp_path, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    sums = [WRITE, ("add", {"a": 2, "b": 3})]  # tools of one's own run unasked
    with HeldDouble(sums, [LEDGER, OTHER], "done", "again") as server:
        (folder / "config.toml").write_text(
            f'base_url = "{server.base_url}"\nmodel = "from-config"\ntools = ["mine.py"]\n'
            'rules = [["allow", "write"], ["allow", "bash", {command = "touch *"}]]\n'
        )
        done = run("--prompt", "go", **go)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        more = ["--prompt", "go", "--model", "m2", "--tools", str(folder / "more.py")]
        assert run(*more, **go).returncode == 0
    assert [request["model"] for request in server.requests][2:] == ["from-config", "m2"]
    assert "* add 2 3\n  5\n" in done.stderr
    names = [[each["function"]["name"] for each in r["tools"]] for r in server.requests]
    assert (names[0][-2:], names[-1][-2:]) == (["add", "sub"], ["bash", "sub"])
    assert {"new.txt", "ran"} < {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / "ran2").exists()
    for wrong, said_of_it in (
        ("modle = 1", "modle.*do you mean .?model"),
        ('provider = "mistral"', "provider: Input should be 'openai', 'anthropic' or 'google'"),
        ("mcp =", "Invalid value"),
    ):
        (folder / "config.toml").write_text(wrong)
        done = run("--prompt", "go", **go)
        assert done.returncode == 2
        assert re.search(f"config.toml: .*{said_of_it}", done.stderr)
