"""`agentloop` without a terminal: one prompt, pipes, exit statuses, a model, the config file."""

import dataclasses
import gzip
import io
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from datetime import date
from functools import partial
from pathlib import Path

import pytest
from agentloop_chat.config import KEYS, Config, choose, config_folder, remember_model
from agentloop_chat.program import Log, start_first
from agentloop_chat.sessions import stem

from agentloop import SessionLocked, Usage, events
from agentloop.cli.main import COMMANDS, main
from agentloop.cli.terminal import Terminal
from agentloop.common.store import SessionFile, session_path
from tests.programs.cli.command import MODULE, ROOT, environment, run
from tests.programs.cli.held_double import HeldDouble

pytest.importorskip("prompt_toolkit", reason="the chat draws with prompt_toolkit and rich")
pytest.importorskip("rich", reason="the chat draws with prompt_toolkit and rich")

LEDGER = ("bash", {"command": "touch ran"})
OTHER = ("bash", {"command": "rm -f ran; touch ran2"})
WRITE = ("write", {"path": "new.txt", "content": "new\n"})
NOWHERE = "--base-url http://127.0.0.1:9 --model m --prompt"
SCRIPT = [str(Path(sys.executable).with_name("agentloop"))]


def ask(server, *options, prompt="go", **more):
    """Run the command with a model on the server."""
    at = ["--base-url", server.base_url, "--model", "m", *["--prompt", prompt] * bool(prompt)]
    return run(*at, *options, **more)


def said(request, *roles):
    return [each["content"] for each in request["messages"] if each["role"] in roles]


def test_no_module_of_the_current_folder_is_imported(tmp_path):
    for name in ("secrets", "pydantic", "httpx", "argparse", "agentloop/__init__"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__)")
    with HeldDouble("answer") as server:
        done = ask(server, cwd=tmp_path, program=SCRIPT)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert done.stdout == "answer\n", done.stderr


def test_the_answer_is_on_stdout_and_the_system_prompt_names_the_folder(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "AGENTS.md").write_text("Write no comments.")
    with HeldDouble(["I look. ", ("read", {"path": "a"})], "It is x.", "one") as server:
        done = ask(server, cwd=tmp_path, stdin="piped")
        assert (done.returncode, done.stdout) == (0, "It is x.\n")
        where = f"m at 127.0.0.1, in {tmp_path}\n"
        assert done.stderr == f"{where}* read a\n  1 x\n(0 tokens in, 0 out)\n"
        assert ask(server, prompt="", cwd=tmp_path, stdin="piped").stdout == "one\n"
    system, memory, prompt = said(server.requests[0], "system", "user")
    assert f"Date: {date.today()}. Working directory: {tmp_path}. " in system
    assert "Write no comments." in memory
    assert prompt == "go\n\npiped"
    assert said(server.requests[-1], "user")[-1] == "piped"


def test_commands_target_what_the_users_terminal_targets_and_withheld_variables_are_named(tmp_path):
    command = ("bash", {"command": "echo $KUBECONFIG $DEPLOY_TOKEN"})
    variables = {"KUBECONFIG": "/staging:/prod", "DEPLOY_TOKEN": "hidden", "HOME": str(tmp_path)}
    with HeldDouble([command], "done", [command], "done") as server:
        done = ask(server, "--yes", cwd=tmp_path, **variables)
        assert "DEPLOY_TOKEN" in done.stderr.splitlines()[1]
        assert said(server.requests[1], "tool") == ["/staging:/prod"]
        file = tmp_path / ".config/agentloop/config.toml"
        file.parent.mkdir(parents=True)
        file.write_text('pass_env = ["DEPLOY_*"]\n')
        done = ask(server, "--yes", cwd=tmp_path, **variables)
        assert "don't get" not in done.stderr
        assert said(server.requests[3], "tool") == ["/staging:/prod hidden"]


@pytest.mark.parametrize("yes", [False, True])
def test_without_a_terminal_only_the_option_yes_approves_calls(tmp_path, yes):
    with HeldDouble([WRITE], "done") as server:
        done = ask(server, *["--yes"] * yes, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert (tmp_path / "new.txt").exists() == yes
    assert ("--yes allows" in done.stderr) == (not yes)


# ---- invalid arguments

WRONG = rf"""
--prompt go -> OPENAI_BASE_URL
-> agentloop demo
--nonsense -> unrecognized arguments
--base-url localhost:1 --model m --prompt go -> must be an http
--provider google --prompt go -> ChatGoogle needs an API key: set GOOGLE_API_KEY
--resume -> No session of
{NOWHERE} go --tools t.py -> t.py: no such file
{NOWHERE} go --tools calendar.py -> calendar.py: rename the file
{NOWHERE} go --tools none.py -> none.py: no tool found; @tool
{NOWHERE} go --tools wrong.py -> SyntaxError: invalid syntax (wrong.py, line 2)
{NOWHERE} go --skills nowhere -> nowhere
{NOWHERE} go --session taken -> is open elsewhere
{NOWHERE} go --session ../x -> isn't a valid session
{NOWHERE} ' ' -> the prompt is empty
bundle compacton -o x.py -> no part 'compacton'
bundle -o x.py -> name the parts
bundle done -o . -> File exists
bundle --upgrade x.py -> No such file or directory
replay none -> session none not found
view missing.jsonl -> session missing.jsonl not found
view none.py -> isn't a session
view s.jsonl -o s.jsonl -> the name after -o must end in .html
view s.jsonl -o no/where.html -> No such file
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a folder in which `main` may be called; undo its changes to this process."""
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    return tmp_path


@pytest.mark.parametrize("row", WRONG.strip().split("\n"))
def test_invalid_arguments_are_errors_and_nothing_is_written(here, capsys, row):
    (here / "none.py").write_text("LIST = []")
    (here / "calendar.py").write_text("")
    (here / "wrong.py").write_text("\ndef f(:\n")
    (here / "s.jsonl").write_text('{"type":"session","schema":2}\n')
    arguments, why = row.split("-> ")
    with SessionFile(session_path("taken", here / ".agentloop" / "sessions")):
        before = {*here.rglob("*")}
        try:
            status = main(shlex.split(arguments))
        except SystemExit as left:
            status = left.code
        assert {*here.rglob("*")} == before
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert why in err
    assert "Errno" not in err
    assert err.count("\n") == 1 or err.startswith(("usage: ", "No model", "m at "))


@pytest.mark.parametrize("word", ["--help", "help"])
def test_help_names_the_exit_statuses_and_the_commands_in_80_columns(capsys, monkeypatch, word):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="^0$"):
        main([word])
    shown = capsys.readouterr().out
    assert "130 interrupted" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for name in COMMANDS:
        assert re.search(rf"(?m)^  {name} +\S", shown)


def test_a_failed_request_exits_with_status_1_and_names_the_model_once(tmp_path):
    with HeldDouble([400, "no"]) as server:
        done = ask(server, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "m failed: 400: no\n" in done.stderr


def test_the_partial_text_of_an_interrupted_stream_is_printed_without_the_error(tmp_path):
    with HeldDouble(["half of ", "it", ConnectionError()]) as server:
        done = ask(server, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "half of it\n")
    assert "m failed: " in done.stderr


def test_a_run_without_an_answer_exits_with_status_3(tmp_path):
    with HeldDouble(["I will not.", {"finish_reason": "content_filter"}]) as server:
        done = ask(server, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "I will not.\n")
    assert "(Stopped: refused.)" in done.stderr


def test_a_closed_stdin_counts_as_empty(tmp_path):
    with HeldDouble("answer") as server:
        command = shlex.join([*MODULE, "--base-url", server.base_url, "-m", "m"])
        answered = run("-c", f"{command} -p go <&-", program=["sh"], cwd=tmp_path)
        empty = run("-c", f"{command} <&-", program=["sh"], cwd=tmp_path)
    assert (answered.returncode, answered.stdout) == (0, "answer\n")
    assert empty.returncode == 2
    assert "the prompt is empty" in empty.stderr
    assert "Traceback" not in empty.stderr


def test_the_arguments_are_the_prompt_and_c_continues_the_newest_session(
    tmp_path,
):
    home = {"cwd": tmp_path, "HOME": str(tmp_path)}
    name = f"{stem(tmp_path)}-1"
    with HeldDouble("one", "two", "three") as server:
        at = ["--base-url", server.base_url, "-m", "m"]
        assert run(*at, "--session", name, "fix", "it", **home).stdout == "one\n"
        assert run(*at, "-c", "-p", "and now?", **home).stdout == "two\n"
        assert run(*at, "--continue", "look at this", stdin="piped", **home).stdout == "three\n"
    assert server.requests[0]["model"] == "m"
    assert said(server.requests[-1], "user") == ["fix it", "and now?", "look at this\n\npiped"]


def test_piped_binary_data_is_rejected_and_text_of_another_encoding_is_sent(tmp_path):
    command = [*MODULE, "--base-url", "", "-m", "m", "-p", "Summarize"]
    more = {"cwd": tmp_path, "env": environment(), "capture_output": True}
    with HeldDouble("fine") as server:
        command[command.index("")] = server.base_url
        for data in (b"\x7fELF\2\1\1\0", gzip.compress(b"text")):
            done = subprocess.run(command, input=data, **more)
            assert (done.returncode, done.stdout) == (2, b"")
            assert b"not text" in done.stderr
        assert not server.requests
        coloured = "caf\xe9 \x1b[31mred\x1b[0m\f".encode("latin-1")
        assert subprocess.run(command, input=coloured, **more).stdout == b"fine\n"


def test_c_continues_the_newest_session_that_is_not_open_elsewhere(tmp_path):
    home = {"cwd": tmp_path, "HOME": str(tmp_path)}
    names = [f"{stem(tmp_path)}-{number}" for number in (1, 2)]
    paths = [session_path(name, tmp_path / ".agentloop" / "sessions") for name in names]
    with HeldDouble("one", "two", "three") as server, ExitStack() as opened:
        for name in names:
            ask(server, "--session", name, prompt=name, **home)
        opened.enter_context(SessionFile(paths[1]))
        assert ask(server, "-c", prompt="go on", **home).stdout == "three\n"
        opened.enter_context(SessionFile(paths[0]))
        done = ask(server, "-c", prompt="go on", **home)
    assert said(server.requests[-1], "user") == [names[0], "go on"]
    assert done.returncode == 2
    assert f"session {names[0]} is open elsewhere" in done.stderr
    assert "close()" not in done.stderr


def test_two_chats_that_start_simultaneously_use_separate_sessions():
    def start(session):
        if session == "desk-1":  # created by the other chat in the meantime
            raise SessionLocked
        return session

    assert start_first(["desk-1", "desk-2"], start) == "desk-2"


def test_json_output_contains_exactly_one_event_per_line(tmp_path):
    (tmp_path / "a").write_text("x")
    hostile = "It is \x1b[2J \u202ex."
    with HeldDouble(["I look.", ("read", {"path": "a"})], hostile, [400, "no"]) as server:
        done = ask(server, "--json", cwd=tmp_path)
        failed = ask(server, "--json", cwd=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stdout.isascii()
    [called] = [each for each in events if each["type"] == "ToolCallEvent"]
    assert {"tool": "read", "args": {"path": "a"}}.items() <= called.items()
    assert called["tool_call_id"]
    result = next(each for each in events if each["type"] == "ToolResultEvent")
    assert (result["tool"], result["is_error"]) == ("read", False)
    assert events[-1] == {
        "type": "FinalResponseEvent",
        "content": hostile,
        "stop_reason": "completed",
    }
    assert failed.returncode == 1
    assert "m failed: 400: no" in failed.stderr
    [error] = [json.loads(line) for line in failed.stdout.splitlines()]
    assert error == {"type": "Error", "message": "m failed: 400: no"}


def test_the_readme_names_the_keys_of_the_events():
    readme = (ROOT / "agentloop" / "cli" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (`\w+Event`.*?) \| (.*) \|$", readme)
    assert len(rows) > 5
    for names, keys in rows:
        for name in re.findall(r"`(\w+)`", names):
            fields = {field.name for field in dataclasses.fields(getattr(events, name))}
            usage = {field.name for field in dataclasses.fields(Usage)}
            assert {*re.findall(r"`(\w+)`", keys)} <= fields | usage, name


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
def test_events_that_cannot_be_written_are_an_error(tmp_path):
    with HeldDouble("answer") as server, open("/dev/full", "w") as full:
        at = ["--base-url", server.base_url, "--model", "m", "--json", "--prompt", "go"]
        streams = {"stdin": subprocess.DEVNULL, "stdout": full, "stderr": subprocess.PIPE}
        done = subprocess.run([*MODULE, *at], cwd=tmp_path, env=environment(), **streams)
    assert (done.returncode, b"space" in done.stderr) == (2, True)


def test_an_interrupted_answer_exits_with_status_130(tmp_path):
    hold, pipe = threading.Event(), subprocess.PIPE
    with HeldDouble(["half", hold]) as server:
        command = [*MODULE, "--base-url", server.base_url, "--model", "m", "--prompt", "go"]
        streams = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, "text": True}
        # under `nohup`, the test run ignores SIGINT, and child processes would inherit this setting
        takes_interrupts = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), preexec_fn=takes_interrupts, **streams
        )
        assert server.arrived.acquire(timeout=200)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
        hold.set()
    assert (process.returncode, out.strip()) == (130, "")
    assert "Traceback" not in err


# ---- the model


@pytest.mark.parametrize(
    ("keys", "given", "kind", "model", "host"),
    [
        ("OPENAI_API_KEY ANTHROPIC_API_KEY", {}, "ChatOpenAI", "gpt-5.4-mini", "api.openai.com"),
        ("ANTHROPIC_API_KEY", {}, "ChatAnthropic", "claude-sonnet-5", "api.anthropic.com"),
        ("GEMINI_API_KEY", {"model": "x"}, "ChatGoogle", "x", "generativelanguage.googleapis.com"),
        ("GOOGLE_API_KEY", {"provider": "openai", "base_url": "http://u:p@h:1/v1", "model": "x"},
         "ChatOpenAI", "x", "h"),
        ("ANTHROPIC_API_KEY", {"base_url": "http://h/v1", "model": "x"}, "ChatOpenAI", "x", "h"),
    ],
)  # fmt: skip
def test_the_api_key_that_is_set_selects_the_provider(monkeypatch, keys, given, kind, model, host):
    for name in (*KEYS, "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in keys.split():
        monkeypatch.setenv(name, "k-1234")
    llm, where = choose(Config(**given))
    assert (type(llm).__name__, llm.model, where) == (kind, model, host)


# ---- custom tools, sessions, and the config file

SERVER = """
from mcp.server import MCPServer

server = MCPServer("shouting")

@server.tool()
def shout(text: str) -> str:
    return text.upper()

server.run()
"""


def test_mcp_servers_and_skills_come_from_the_options_or_the_config_file(tmp_path):
    pytest.importorskip("mcp")
    folder, skill = tmp_path / "agentloop", tmp_path / "agentloop" / "skills" / "tea" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tea\ndescription: Makes tea.\n---\nBoil water.")
    (tmp_path / "server.py").write_text(SERVER)
    good = {"command": sys.executable, "args": [str(tmp_path / "server.py")]}
    servers = {"mcpServers": {"good": good, "bad": {"command": "no-such-program"}}}
    (folder / "mcp.json").write_text(json.dumps(servers))
    turns = [("good__shout", {"text": "hi"}), ("skill", {"name": "tea"})], "done"
    with HeldDouble(*turns, *turns) as server:
        files = ["--mcp", "agentloop/mcp.json", "--skills", "agentloop/skills"]
        named = ask(server, *files, "--yes", cwd=tmp_path)
        (folder / "config.toml").write_text(
            'mcp = "mcp.json"\nskills = "skills"\nrules = [["allow", "good__*"]]'
        )
        configured = ask(server, cwd=tmp_path, XDG_CONFIG_HOME=str(tmp_path))
    for done in (named, configured):
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert "Starting the MCP servers" in done.stderr
        assert "MCP server good started, tools: 1" in done.stderr
        assert "MCP server 'bad':" in done.stderr
    for request in server.requests[1::2]:
        shouted, skill = said(request, "tool")
        assert shouted == "HI"
        assert skill.endswith("Boil water.")


def test_a_named_session_is_saved_and_continued(tmp_path):
    home = {"cwd": tmp_path, "HOME": str(tmp_path)}
    with HeldDouble("one", "two", "three") as server:
        for prompt, options in (("first", "--session s"), ("second", "--session s"), ("third", "")):
            ask(server, *options.split(), prompt=prompt, **home)
    sent = [said(each, "user", "assistant") for each in server.requests]
    assert sent == [["first"], ["first", "one", "second"], ["third"]]
    listed = run("--resume", **home).stderr
    assert listed == f"No session of {tmp_path} found.\n", "a named session belongs to no folder"
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["s.jsonl"]


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
RULES = 'rules = [["allow", "write"], ["allow", "bash", {command = "touch *"}]]'


def test_the_config_file_provides_the_defaults_of_the_options(tmp_path):
    folder = tmp_path / "config" / "agentloop"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(OWN)
    (folder / "more.py").write_text("from mine import sub as also")
    go = {"cwd": tmp_path, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    sums = [WRITE, ("add", {"a": 2, "b": 3})]  # custom tools require no approval
    with HeldDouble(sums, [LEDGER, OTHER], "done", "again") as server:
        where = f'base_url = "{server.base_url}"\nmodel = "from-config"\ntools = ["mine.py"]\n'
        (folder / "config.toml").write_text(where + RULES)
        done = run("--prompt", "go", **go)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        more = ["--prompt", "go", "--model", "m2", "--tools", str(folder / "more.py")]
        assert run(*more, **go).returncode == 0
    assert [request["model"] for request in server.requests][2:] == ["from-config", "m2"]
    assert "* add 2 3\n  5\n" in done.stderr
    names = [[each["function"]["name"] for each in r["tools"]] for r in server.requests]
    assert (names[0][-2:], names[-1][-2:]) == (["add", "sub"], ["bash_kill", "sub"])
    assert {"new.txt", "ran"} < {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / "ran2").exists()


def test_the_config_file_adds_web_access_and_a_sub_agent_that_only_reads(tmp_path):
    folder = tmp_path / "config" / "agentloop"
    folder.mkdir(parents=True)
    (tmp_path / "a.py").write_text("milk = 1\n")
    (folder / "config.toml").write_text('web = ["docs.python.org"]\nsub_agent = "small"\n')
    fetch = ("web_fetch", {"url": "http://127.0.0.1/"})
    turns = [("ask_reader", {"prompt": "Where is milk?"}), fetch], [("read", {"path": "a.py"})]
    with HeldDouble(*turns, "In a.py.", "done") as server:
        done = ask(server, cwd=tmp_path, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert done.stdout == "done\n", done.stderr
    assert [request["model"] for request in server.requests] == ["m", "small", "small", "m"]
    offered = {each["function"]["name"] for each in server.requests[1]["tools"]}
    assert "read" in offered
    assert not offered & {"bash", "write", "edit", "multi_edit", "ask_reader"}
    answer, refusal = said(server.requests[-1], "tool")
    assert answer == "In a.py."
    assert "docs.python.org" in refusal


MISTAKES = {
    "".join(f"unknown{number} = 1\n" for number in range(10, 30)): "unknown10: unknown setting",
    "modle = 1": "modle.*Did you mean model",
    'provider = "mistral"': "provider: Input should be 'openai', 'anthropic' or 'google'",
    "mcp =": "Invalid value",
}


@pytest.mark.parametrize(("text", "why"), MISTAKES.items())
def test_a_mistake_in_the_config_file_is_named(here, monkeypatch, capsys, text, why):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here))
    (here / "agentloop").mkdir()
    (here / "agentloop" / "config.toml").write_text(text)
    assert main(["--prompt", "go"]) == 2
    assert re.search(f"config.toml: .*{why}", capsys.readouterr().err)


# ---- imports, attached files, and the log


def test_the_chat_can_be_imported_without_posix_modules():
    code = """
import sys
for name in "termios readline pty tty resource rich prompt_toolkit".split():
    sys.modules[name] = None
import agentloop.cli.main, agentloop_chat.conversation, agentloop.cli.demo
assert "httpx" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_only_file_names_in_typed_text_and_inside_the_folder_attach_files(tmp_path):
    home, folder = tmp_path / "home", tmp_path / "project"
    (home / ".ssh").mkdir(parents=True)
    folder.mkdir()
    (home / ".ssh" / "id_rsa").write_text("PRIVATE")
    (folder / ".env").write_text("TOKEN")
    (folder / "shop.py").write_text("price = 3")
    (folder / "link.txt").symlink_to(home / ".ssh" / "id_rsa")
    more = {"cwd": folder, "HOME": str(home)}
    with HeldDouble("A.", "B.") as server:
        ask(server, prompt="Summarize", stdin="see @~/.ssh/id_rsa and @.env and @shop.py", **more)
        ask(server, prompt="Explain @shop.py", **more)
        for path in ("~/.ssh/id_rsa", "../home/.ssh/id_rsa", "link.txt"):
            done = ask(server, prompt=f"Explain @{path}", **more)
            assert done.returncode == 2
            assert "outside" in done.stderr
    piped, typed = (str(request["messages"]) for request in server.requests)
    assert not {"PRIVATE", "TOKEN", "price"} & set(re.findall(r"\w+", piped))
    assert "price = 3" in typed


def test_a_file_that_cannot_be_attached_is_named_and_the_prompt_is_sent(tmp_path):
    for name in ("photo.png", "huge.log"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"\x89PNG" if name == "photo.png" else b"a line\n")
            file.truncate(5_000_000_000)
    (tmp_path / "program.bin").write_bytes(b"\x7fELF\0")
    names = ["~nobody.here/x.py", f"{'x' * 300}.py", "photo.png", "huge.log", "program.bin"]
    names += ["missing.py"]
    with HeldDouble("A.") as server:
        done = ask(server, prompt=" ".join(f"@{name}" for name in names), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("not attached") == len(names)
    assert done.stderr.count("5,000,000") == 2
    assert said(server.requests[0], "user") == [" ".join(f"@{name}" for name in names)]


def test_the_middle_of_a_long_file_is_left_out(tmp_path):
    lines = b"a line\n" * 100_000
    (tmp_path / "long.log").write_bytes(b"first line\n" + lines + b"last line\n")
    with HeldDouble("A.") as server:
        done = ask(server, prompt="see @long.log", cwd=tmp_path)
    assert "without its middle" in done.stderr
    attached = str(said(server.requests[0], "user"))
    assert len(attached) < 70_000
    assert "first line" in attached
    assert "last line" in attached


@pytest.mark.parametrize(
    "name",
    [
        'qwen3"\nrules = [["allow","*"]]\n#',
        "C:\\Users\\ann\\qwen.gguf",
        'a"b',
        "日本\x7f",
        "𝒳",
        "a'''b",
    ],
)
def test_a_selected_model_is_saved_as_data_without_changing_the_config_file(
    tmp_path, monkeypatch, name
):
    for key in (*KEYS, "XDG_CONFIG_HOME"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = config_folder() / "config.toml"
    remember_model(("http://localhost:1/v1", name))
    file.write_text("context_window = 1000\n")
    llm, where = choose(Config())
    assert (llm.model, where) == (name, "localhost")
    assert file.read_text() == "context_window = 1000\n"
    assert choose(Config(model="other"))[0].model == "other"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-1234")
    assert choose(Config())[1] == "api.anthropic.com", "a configured provider takes precedence"


def test_a_model_can_be_selected_although_the_choice_cannot_be_saved(tmp_path, monkeypatch):
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    offered = [(("http://localhost:1/v1", "a-model"), "a label")]
    monkeypatch.setattr("agentloop_chat.config.local_models", lambda: offered)
    llm, _ = choose(Config(), lambda question, options: options[0][0])
    assert llm.model == "a-model"


def test_the_log_shows_the_complete_reason_of_a_failed_request():
    stream = io.StringIO()
    why = ("a long reason " * 20).strip()
    log = Log(Terminal(stream))
    log.handle(logging.LogRecord("x", logging.WARNING, "", 1, why, (), None))
    assert stream.getvalue() == f"({why})\n"


def test_log_messages_are_escaped_and_only_warnings_and_retries_are_shown():
    stream = io.StringIO()
    log = Log(Terminal(stream))
    log.handle(logging.LogRecord("x", logging.WARNING, "", 1, "bad \x1b[2J", (), None))
    log.handle(logging.LogRecord("agentloop", logging.INFO, "memory.py", 1, "quiet", (), None))
    again = "ChatOpenAI('m'): attempt 1 failed: ChatOpenAI('m'): 500: no"
    log.handle(logging.LogRecord("agentloop", logging.INFO, "http.py", 1, again, (), None))
    assert stream.getvalue() == "(bad \\x1b[2J)\n(attempt 1 failed: 500: no)\n"
