"""`agentloop replay`: a session turn by turn, as a pytest file, and live again."""

import json
import re
import subprocess
import sys

import pytest

from agentloop import AssistantMessage, ToolCall, ToolMessage, UserMessage, dump_record
from agentloop.cli.replay import as_pytest
from agentloop.messages import RunStart
from agentloop.models.replay import ReplayModel
from agentloop.store import read_log
from tests.cli.held_double import HeldDouble

pytest.importorskip("termios", reason="the environment of these tests is made for POSIX")
from tests.cli.screen import Screen, environment
from tests.cli.warm import run

TURNS = (
    ["I look. ", ("read", {"path": "notes.txt"}), ("bash", {"command": "cat notes.txt | wc -l"})],
    [("write", {"path": "notes.txt", "content": "milk\nbread\n"}), ("bash", {"command": "pwd"})],
    "There is bread on the list now.",
    [("bash", {"command": "rm notes.txt"})],
    "Then I leave it.",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the chat has made a session; the notes are as they were before."""
    home = tmp_path_factory.mktemp("home")
    project = home / "project"
    project.mkdir()
    (project / "notes.txt").write_text("milk\n")
    with HeldDouble(*TURNS) as server:

        def ask(prompt, *more):
            options = ["--base-url", server.base_url, "--session", "list", "--prompt", prompt]
            done = run(*options, *more, cwd=project, HOME=str(home))
            assert done.returncode == 0, done.stderr

        ask("Add bread to my list.", "--yes")
        ask("Delete it.")  # which nobody allows
    (project / "notes.txt").write_text("milk\n")
    return project


def session_of(folder):
    return folder.parent / ".agentloop" / "sessions" / "list.jsonl"


def replay(folder, *arguments):
    return run("replay", *arguments, cwd=folder, HOME=str(folder.parent))


def test_it_shows_each_turn(folder):
    done = replay(folder, "list")
    assert (done.returncode, done.stderr) == (0, "")
    turns = re.split("\nTurn ", done.stdout)[1:]
    assert [turn.split(":")[0] for turn in turns] == [f"{n} of 5" for n in range(1, 6)]
    assert re.sub(r"\d+\.\d\d s", "0.00 s", turns[0]).splitlines() == [
        "1 of 5: m, 0.00 s",
        "  saw user: Add bread to my list.",
        "  said",
        "    | I look. ",
        "  * read notes.txt",
        "    0.00 s, 1 milk",
        "  * bash cat notes.txt | wc -l",
        "    0.00 s, 1",
    ]
    assert "  saw result of read: 1 milk" in turns[1]
    assert "The run ended: completed" in turns[2]
    assert "saw user: Delete it." in turns[3]
    assert "error: Denied: this command was not approved" in turns[3]


def test_one_turn_is_shown_with_all_that_the_model_saw(folder):
    done = replay(folder, str(session_of(folder)), "--at", "5")
    assert done.returncode == 0
    assert done.stdout.count("\nTurn ") == 1
    for text in (
        "saw user",
        "    | Add bread to my list.",
        "    | There is bread on the list now.",
    ):
        assert text in done.stdout
    assert "    * write notes.txt" in done.stdout


async def test_what_was_pruned_is_shown_as_the_model_saw_it(tmp_path):
    from agentloop import Agent, ScriptedModel, Session, tool
    from agentloop.models.scripted import call

    @tool(ephemeral=1)
    def page(n: int) -> str:
        """Look."""
        return f"page {n}" + " word" * 300

    class Kept(Session, Agent):
        pass

    llm = ScriptedModel(*(call("page", n=n) for n in range(6)), "end")
    agent = Kept(llm=llm, tools=[page], session="s", session_dir=tmp_path)
    await agent.run("go")
    agent.close()
    for turn in (1, 5, 7):
        shown = run("replay", "s.jsonl", "--at", str(turn), cwd=tmp_path).stdout
        texts = [message.text for message in llm.requests[turn - 1].messages]
        assert shown.count("[An older result") == sum(t.startswith("[An older") for t in texts)
    assert shown.count("[An older result") > 2


def test_on_a_screen_it_waits_between_the_turns(folder):
    with Screen("replay", "list", cwd=folder, HOME=str(folder.parent)) as screen:
        screen.expect("Turn 1 of 5")
        screen.expect("q: leave >")
        screen.enter("")
        assert "Turn 2 of 5" in screen.expect("q: leave >")
        screen.enter("a")
        screen.expect("Turn 5 of 5")
        assert screen.status() == 0


def test_what_a_terminal_would_obey_is_spelled_out(tmp_path):
    evil = "\x1b]0;evil\x07\x1b[2J\u202e"
    log = [
        RunStart(at=1.0),
        UserMessage(evil),
        AssistantMessage(evil, [ToolCall("a", evil, json.dumps({evil: evil}))], model=evil),
        ToolMessage("a", evil, evil),
    ]
    path = tmp_path / "s.jsonl"
    lines = [b'{"type":"session","schema":1}', *map(dump_record, log)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    for more in ([], ["--at", "1"]):
        done = run("replay", "s.jsonl", *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "\\x1b]0;evil\\x07" in done.stdout
        assert not set("\x1b\x07\u202e") & set(done.stdout)


def test_wrong_usage_is_one_line(folder):
    for arguments, problem in (
        (["none"], "there is no session none"),
        (["list", "--at", "6"], "--at 6: list.jsonl has the turns 1 to 5"),
        (["list", "--fork", "x"], "--fork needs --at K"),
        (["list", "--testcase", "--agent", "x"], "--agent is MODULE:NAME"),
        (["list", "--testcase", "--agent", "os:system('x')"], "--agent is MODULE:NAME"),
        (["list", "--testcase", "--folder", "none"], "No such file"),
    ):
        done = replay(folder, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1


# ---- as a test


def run_pytest(path, **env):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name],
        cwd=path.parent,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_the_test_that_it_prints_passes_until_a_result_changes(folder, tmp_path):
    done = replay(folder, "list", "--testcase")
    assert (done.returncode, done.stderr) == (0, "")
    test = tmp_path / "test_list.py"
    test.write_text(done.stdout)
    passed = run_pytest(test)
    assert passed.returncode == 0, passed.stdout
    assert (folder / "notes.txt").read_text() == "milk\n"  # it worked in a copy
    (folder / "notes.txt").write_text("beer\n")
    failed = run_pytest(test)
    (folder / "notes.txt").write_text("milk\n")
    assert failed.returncode == 1
    assert "ReplayMismatch: request 2 differs from list.jsonl" in failed.stdout
    assert re.search(r"\nE +- +1\tmilk\nE +\+ +1\tbeer\n", failed.stdout)


@pytest.mark.slow
def test_the_test_of_an_agent_of_ones_own(tmp_path):
    code = (
        "from agentloop import *\n\n@tool\ndef add(a: int, b: int) -> int:\n    'Add.'\n"
        "    return a + b\n\nclass Mine(Session, Agent):\n    tools = [add]\n"
    )
    (tmp_path / "mine.py").write_text(code)
    make = (
        "from mine import *; from agentloop.models.scripted import call;"
        "a = Mine(llm=ScriptedModel(call('add', a=1, b=2), '3'), session='s', session_dir='.');"
        "a.run_sync('go')"
    )
    subprocess.run([sys.executable, "-c", make], check=True, cwd=tmp_path, env=environment())
    done = run("replay", "s.jsonl", "--testcase", "--agent", "mine:Mine", cwd=tmp_path)
    (tmp_path / "test_s.py").write_text(done.stdout)
    passed = run_pytest(tmp_path / "test_s.py")
    assert passed.returncode == 0, passed.stdout
    (tmp_path / "mine.py").write_text(code.replace("a + b", "a - b"))
    failed = run_pytest(tmp_path / "test_s.py")
    assert failed.returncode == 1
    assert "-3" in failed.stdout
    done = run("replay", "s.jsonl", "--testcase", cwd=tmp_path)
    assert "tools = []  # PUT YOUR TOOLS HERE; the session called: add" in done.stdout
    put = "from mine import add\n" + done.stdout.replace("tools = []", "tools = [add]")
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "test_s.py").write_text(put)
    assert run_pytest(tmp_path / "test_s.py").returncode == 0


def test_no_name_in_a_session_becomes_code(tmp_path):
    evil = 'x"""\nimport os\nos.abort()\n#'
    log = [AssistantMessage(tool_calls=[ToolCall("a", evil)])]
    path = tmp_path / 'a"""b\'.jsonl'
    path.touch()
    for agent in (None, "my.agent:Mine"):
        code = as_pytest(path, log, str(tmp_path), agent)
        compile(code, "test", "exec")
        assert "import os" not in code.splitlines()
        assert "os.abort()" not in code.splitlines()


# ---- live again


def test_it_forks_at_any_turn_onto_another_model(folder):
    before = session_of(folder).read_bytes()
    for turn in range(1, 6):
        with HeldDouble("I am another.", models=["other"]) as server:
            options = ["--at", str(turn), "--fork", f"new-{turn}", "--model", "other"]
            done = replay(folder, "list", *options, "--base-url", server.base_url)
        assert done.returncode == 0, done.stdout
        assert f"other at 127.0.0.1:{server.port}, from turn {turn} of list.jsonl" in done.stdout
        [request] = server.requests
        assert request["model"] == "other"
        llm = ReplayModel(session_of(folder))
        sent = [m for m in request["messages"] if m["role"] in ("user", "tool")][-1]
        assert llm.entries[turn - 1].request.endswith(sent["content"])
        log = read_log(session_of(folder).with_name(f"new-{turn}.jsonl"))
        replies = [record for record in log if isinstance(record, AssistantMessage)]
        assert [reply.model for reply in replies] == ["m"] * (turn - 1) + ["other"]
        assert replies[-1].text == "I am another."
    assert session_of(folder).read_bytes() == before


def test_a_fork_needs_a_new_name_and_a_model(folder):
    with HeldDouble("hm") as server:
        options = ["--at", "2", "--fork", "list", "--base-url", server.base_url]
        done = replay(folder, "list", *options)
    assert (done.returncode, "there is a session 'list' already" in done.stderr) == (2, True)
    options = ["--ports", "{}", "replay", "list", "--at", "2", "--fork", "x"]
    done = run(*options, cwd=folder, HOME=str(folder.parent))
    assert done.returncode == 2
    assert "There is no model to talk to" in done.stdout
    assert not session_of(folder).with_name("x.jsonl").exists()


def test_a_fork_may_be_told_something_else(folder):
    with HeldDouble("Butter it is.") as server:
        options = ["--at", "4", "--fork", "b", "--base-url", server.base_url, "--prompt", "Butter!"]
        done = replay(folder, "list", *options)
    assert "Butter it is." in done.stdout
    assert [m["content"] for m in server.requests[0]["messages"][-2:]] == ["Delete it.", "Butter!"]


# ---- bodies


def test_a_dump_has_the_bodies_and_no_key(folder):
    with HeldDouble("one", "two") as server:
        options = ["--base-url", server.base_url, "--dump", "bodies", "--prompt", "Is sk-12345 it?"]
        done = run(*options, cwd=folder, HOME=str(folder.parent), OPENAI_API_KEY="sk-12345")
        assert done.returncode == 0, done.stderr
        options = ["--at", "1", "--fork", "c", "--base-url", server.base_url, "--dump", "bodies"]
        assert replay(folder, "list", *options).returncode == 0
    names = sorted(path.name for path in (folder / "bodies").iterdir())
    kinds = ("request.json", "response.sse")
    assert names == [f"000{n}-{kind}" for n in (1, 2) for kind in kinds]
    request = (folder / "bodies" / names[0]).read_text()
    assert json.loads(request)["messages"][-1]["content"] == "Is *** it?"
    assert "sk-12345" not in "".join(path.read_text() for path in (folder / "bodies").iterdir())
