"""The chat, driven through a real pseudo-terminal."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading

import pytest

pytest.importorskip("termios", reason="there are no pseudo-terminals here")

from tests.cli.held_double import HeldDouble
from tests.cli.screen import CTRL_D, Screen, environment, wait_for

LEDGER = ("bash", {"command": "echo ran >> ledger"})
UP = "\x1b[A"
PROMPT, QUESTION = "> ", "[y/N/a] > "


@pytest.fixture
def chat(tmp_path):
    """Starts a chat with a server, in an empty folder, and waits for the prompt."""
    screens = []

    def start(server, *arguments, **options):
        screen = Screen("--base-url", server.base_url, *arguments, cwd=tmp_path, **options)
        screens.append(screen)
        screen.expect("/help says more.")
        screen.expect(PROMPT)
        return screen

    yield start
    for screen in screens:
        screen.__exit__()


def leave(screen):
    screen.enter("/exit")
    assert screen.status() == 0


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def results(request):
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def said(request):
    return [message["content"] for message in request["messages"] if message["role"] == "user"]


def test_text_appears_before_the_reply_is_complete(chat):
    hold = threading.Event()
    with HeldDouble(["the first half, ", hold, "the second half"]) as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect("the first half, ")
        assert "second" not in screen.plain
        hold.set()
        screen.expect("the second half\r\n")
        screen.expect(PROMPT)
        leave(screen)


def test_thinking_is_dimmed_and_left_out_where_there_is_no_colour(chat):
    turn = [{"reasoning_content": "let me"}, {"reasoning_content": " see"}, "fine"]
    with HeldDouble(turn, turn) as server:
        for env, thinking in (
            ({}, "\x1b[2mlet me\x1b[0m\x1b[2m see\x1b[0m\r\nfine"),
            ({"NO_COLOR": "1"}, "fine"),
        ):
            screen = chat(server, **env)
            screen.enter("go")
            screen.expect("fine\r\n")
            leave(screen)
            assert thinking in screen.output
            assert ("\x1b[2m" in screen.output) == ("NO_COLOR" not in env)


def test_what_is_allowed_runs_and_what_is_denied_does_not(chat, tmp_path):
    write = ("write", {"path": "new.txt", "content": "one\n\ttwo\n"})
    with HeldDouble([LEDGER], [LEDGER], [write], "done") as server:
        screen = chat(server)
        screen.enter("go")
        assert "| echo ran >> ledger\r\n" in screen.expect(QUESTION)
        screen.enter("y")
        screen.expect(QUESTION)
        assert lines_of(tmp_path / "ledger") == ["ran"]
        screen.enter("n")
        shown = screen.expect(QUESTION)
        assert "  + one\r\n" in shown
        assert "  +     two\r\n" in shown
        screen.enter("maybe")  # is asked again
        screen.expect(QUESTION)
        screen.enter("")
        screen.expect("done\r\n")
        leave(screen)
        assert lines_of(tmp_path / "ledger") == ["ran"]
        assert not (tmp_path / "new.txt").exists()
        first, second, third = results(server.requests[-1])
        assert first == "[No output.]"
        assert second.startswith("Denied")
        assert third.startswith("Denied")


def test_always_covers_what_it_says_and_nothing_else(chat, tmp_path):
    edit = ("edit", {"path": "a", "old_text": "1", "new_text": "2"})
    other = ("bash", {"command": "echo ran >> ledger && true"})
    write = ("write", {"path": "b", "content": "3"})
    (tmp_path / "a").write_text("1")
    with HeldDouble([LEDGER], [LEDGER], [other], [edit], [write], "done") as server:
        screen = chat(server)
        screen.enter("go")
        assert "always: this very command in this folder, until you" in screen.expect(QUESTION)
        screen.enter("a")
        assert "| echo ran >> ledger && true\r\n" in screen.expect(QUESTION)
        assert lines_of(tmp_path / "ledger") == ["ran"] * 2
        screen.enter("n")
        shown = screen.expect(QUESTION)
        assert "  - 1\r\n" in shown
        assert "  + 2\r\n" in shown
        assert "always: each write and edit of a file in this folder" in shown
        screen.enter("always")
        screen.expect("done\r\n")
        leave(screen)
        assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("2", "3")
        assert lines_of(tmp_path / "ledger") == ["ran"] * 2


def test_always_for_a_command_ends_where_its_folder_does(chat, tmp_path):
    (tmp_path / "sub").mkdir()
    move = ("bash", {"command": "cd sub"})
    with HeldDouble([LEDGER], [move], [LEDGER], "done") as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect(QUESTION)
        screen.enter("a")
        screen.expect(QUESTION)
        screen.enter("y")
        assert f"in {tmp_path / 'sub'}?" in " ".join(screen.expect(QUESTION).split())
        screen.enter("n")
        screen.expect("done\r\n")
        leave(screen)
        assert not (tmp_path / "sub" / "ledger").exists()


def test_with_yes_nothing_is_asked(chat, tmp_path):
    with HeldDouble([LEDGER], "done") as server:
        screen = chat(server, "--yes")
        screen.enter("go")
        assert QUESTION not in screen.expect("done\r\n")
        leave(screen)
        assert lines_of(tmp_path / "ledger") == ["ran"]


def test_what_was_typed_before_a_question_does_not_answer_it(chat, tmp_path):
    hold = threading.Event()
    with HeldDouble(["wait for it ", hold, LEDGER], "done") as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect("wait for it ")
        for line in ("y", "a", "yes"):
            screen.enter(line)
            screen.expect(f"{line}\r\n")  # the terminal has it, and echoes it
        hold.set()
        screen.expect(QUESTION)
        screen.enter("n")
        screen.expect("done\r\n")
        leave(screen)
        assert results(server.requests[-1])[0].startswith("Denied")
        assert not (tmp_path / "ledger").exists()


def test_ctrl_c_stops_a_reply_and_the_conversation_goes_on(chat):
    hold = threading.Event()
    with HeldDouble(["half of it", hold, " never"], "fine") as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect("half of it")
        screen.press_ctrl_c()
        screen.expect("(Stopped.")
        screen.expect(PROMPT)
        screen.enter("something else")
        screen.expect("fine\r\n")
        leave(screen)
        hold.set()
        assert said(server.requests[-1]) == [
            "go",
            "The user interrupted you here.",
            "something else",
        ]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_ctrl_c_stops_a_tool_and_what_it_started(chat, tmp_path):
    command = "echo $$ > pid; sleep 300; echo ran >> ledger"
    with HeldDouble([("bash", {"command": command})], "fine") as server:
        screen = chat(server, "--yes")
        screen.enter("go")
        wait_for(lambda: lines_of(tmp_path / "pid"))
        screen.press_ctrl_c()
        screen.expect("(Stopped.")
        wait_for(lambda: is_gone(int(lines_of(tmp_path / "pid")[0])))
        screen.enter("/retry")
        screen.expect("fine\r\n")
        leave(screen)
        assert "outcome is unknown" in results(server.requests[-1])[0]
        assert said(server.requests[-1])[-1] == "The user interrupted you here."
        assert not (tmp_path / "ledger").exists()


def test_ctrl_c_at_a_question_denies_and_stops(chat, tmp_path):
    with HeldDouble([LEDGER, LEDGER], "fine") as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect(QUESTION)
        screen.press_ctrl_c()
        assert QUESTION not in screen.expect("(Stopped.")
        screen.expect(PROMPT)
        screen.enter("go on")
        screen.expect("fine\r\n")
        leave(screen)
        first, second = results(server.requests[-1])
        assert first.startswith("Denied")
        assert second.startswith(("Denied", "Not run"))
        assert not (tmp_path / "ledger").exists()


def test_the_end_of_input_denies(chat, tmp_path):
    with HeldDouble([LEDGER], "fine") as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect(QUESTION)
        screen.type(CTRL_D)
        screen.expect("fine\r\n")
        leave(screen)
        assert not (tmp_path / "ledger").exists()


def test_lines_are_cut_to_the_width_that_the_terminal_has_now(chat):
    hold = threading.Event()
    wide = ("read", {"path": "x" * 200})
    with HeldDouble([wide], ["now it changes", hold, wide], "done") as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect("now it changes")
        screen.resize(30)
        hold.set()
        screen.expect("done\r\n")
        leave(screen)
        calls = [line for line in screen.plain.split("\r\n") if line.startswith("* read")]
        assert [len(line) for line in calls] == [79, 29]
        assert all(line.endswith("...") for line in calls)


def test_a_question_shows_all_of_a_long_argument(chat):
    command = f"echo {'x' * 500} # the end"
    with HeldDouble([("bash", {"command": command})], "done") as server:
        screen = chat(server, columns=60)
        screen.enter("go")
        shown = screen.expect(QUESTION)
        pieces = re.findall(r"^  \| (.*)\r$", shown, re.MULTILINE)
        assert "".join(pieces[:-1]) == command
        assert max(map(len, pieces)) <= 60
        screen.enter("n")
        screen.expect("done\r\n")
        leave(screen)


HOSTILE = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt.exe\u2066\u200b\r"


def test_nothing_hostile_reaches_the_terminal(chat, tmp_path):
    printed = f"printf %s {shlex.quote(HOSTILE)}"
    script = [
        [*HOSTILE, "the text\n", (HOSTILE, {HOSTILE: HOSTILE})],  # a delta for each character
        [("bash", {"command": printed})],
        [("write", {"path": f"{HOSTILE}.txt", "content": HOSTILE})],
        "the end",
        [400, f"refused {HOSTILE}"],
    ]
    with HeldDouble(*script, models=[HOSTILE]) as server:
        screen = chat(server)
        screen.enter("go")
        shown = screen.expect(QUESTION)
        assert r"\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt.exe\u2066\u200b" in shown
        assert "what cannot be shown is spelled out" in shown
        screen.enter("y")
        screen.expect(QUESTION)
        screen.enter("a")
        screen.expect("the end\r\n")
        screen.enter("again")
        screen.expect("The model failed:")
        leave(screen)
    ours = re.sub(r"\x1b\[(\d*m|K|C|A)|\x1b[=>]|\x1b\[\?1[hl]", "", screen.plain)
    ours = re.sub(r"\r+\n|^\r|\r(?=> )|(?<=> )\r", "", ours)
    assert not re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", ours)
    assert "]52;" in ours  # spelled out
    assert len(list(tmp_path.iterdir())) == 1  # the file is there, under its own bad name


def test_after_an_error_the_conversation_goes_on(chat):
    with HeldDouble([400, "no such thing"], "fine", "better") as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect("400: no such thing\r\n")
        screen.expect(PROMPT)
        screen.enter("/retry")
        screen.expect("fine\r\n")
        screen.enter("/retry")
        screen.expect("nothing to retry")
        screen.enter("another")
        screen.expect("better\r\n")
        leave(screen)
        assert [said(request) for request in server.requests] == [["go"]] * 2 + [["go", "another"]]


def test_the_commands(chat):
    with HeldDouble("one", "two") as server:
        screen = chat(server)
        screen.enter("/help")
        screen.expect("/clear")
        screen.enter("/nonsense")
        screen.expect("There is no /nonsense")
        screen.enter("/etc/hosts is a file")  # no command
        screen.expect("one\r\n")
        screen.enter("/usage")
        screen.expect(" tokens in")
        screen.enter("/clear")
        screen.expect("A new conversation")
        screen.enter("hello")
        screen.expect("two\r\n")
        leave(screen)
        assert said(server.requests[-1]) == ["hello"]


def test_a_session_goes_on_after_a_kill_in_the_middle_of_a_tool(chat, tmp_path):
    command = "echo $$ > pid; echo ran >> ledger; exec sleep 300"
    with HeldDouble([("bash", {"command": command})], "fine", "again") as server:
        screen = chat(server, "--yes", "--session", "s", HOME=str(tmp_path))
        assert "(New session s.)" in screen.plain
        screen.enter("go")
        wait_for(lambda: lines_of(tmp_path / "ledger"))
        screen.process.kill()
        screen.status()
        os.kill(int(lines_of(tmp_path / "pid")[0]), signal.SIGKILL)  # nobody else is left to do it
        screen = chat(server, "--session", "s", HOME=str(tmp_path))
        banner = "(Session s: 3 messages so far, open calls: 1. /retry goes on where it ended.)"
        assert banner in screen.plain.replace("\r\n", " ")
        screen.enter("/retry")
        screen.expect("fine\r\n")
        leave(screen)
        assert "outcome is unknown" in results(server.requests[-1])[0]
        assert lines_of(tmp_path / "ledger") == ["ran"]
        screen = chat(server, "--session", "s", HOME=str(tmp_path))
        assert "(Session s: 4 messages so far.)" in screen.plain
        screen.enter("/clear")
        screen.expect("(A new conversation. Session s begins afresh too.)")
        screen.enter("hello")
        screen.expect("again\r\n")
        leave(screen)
        assert said(server.requests[-1]) == ["hello"]
        screen = chat(server, "--session", "s", HOME=str(tmp_path))
        assert "(Session s: 2 messages so far.)" in screen.plain
        leave(screen)


def test_a_session_is_open_once(chat, tmp_path):
    with HeldDouble() as server:
        first = chat(server, "--session", "s", HOME=str(tmp_path))
        options = ["--base-url", server.base_url, "--session", "s"]
        with Screen(*options, cwd=tmp_path, HOME=str(tmp_path)) as second:
            second.expect("Session 's' is open in another terminal")
            assert second.status() == 2
        leave(first)


def test_a_chat_is_kept_as_a_session_of_its_folder(chat, tmp_path):
    with HeldDouble("one", "two", "three", "four") as server:
        home = tmp_path / "home"
        screen = chat(server, HOME=str(home))
        name = re.search(r"\(New session (\S+)-1\.\)", screen.plain)[1]
        leave(screen)
        assert list(home.rglob("*.jsonl")) == [], "nothing was said in it"
        screen = chat(server, HOME=str(home))
        screen.enter("first words")
        screen.expect("one\r\n")
        leave(screen)
        assert f"agentloop --session {name}-1)" in screen.plain.replace("\r\n", " ")
        screen = chat(server, HOME=str(home))
        assert f"(New session {name}-2.)" in screen.plain
        screen.enter("other words")
        screen.expect("two\r\n")
        leave(screen)
        screen = chat(server, "--resume", HOME=str(home))
        assert f"(Session {name}-2: 2 messages so far.)" in screen.plain
        screen.enter("more words")
        screen.expect("three\r\n")
        leave(screen)
        assert said(server.requests[-1]) == ["other words", "more words"]
        screen = chat(server, "--session", f"{name}-1", HOME=str(home))
        screen.enter("third")
        screen.expect("four\r\n")
        leave(screen)
        with Screen("--list", cwd=tmp_path, columns=120, HOME=str(home)) as listed:
            assert listed.status() == 0
        [one, two] = listed.plain.splitlines()  # newest first
        assert re.fullmatch(rf"{name}-1  \d{{4}}-\d\d-\d\d \d\d:\d\d    2 turns  first words", one)
        assert re.fullmatch(rf"{name}-2  .{{16}}    2 turns  other words", two)
        other = tmp_path / "other"
        other.mkdir()
        wide = {"cwd": other, "columns": 200, "HOME": str(home)}
        with Screen("--list", **wide) as listed:
            listed.expect(f"(No session of {other} is kept.)")
        with Screen("--resume", "--base-url", server.base_url, **wide) as resumed:
            resumed.expect(f"There is no session of {other} to go on with yet.")
            assert resumed.status() == 2


def test_two_chats_in_a_folder_are_two_sessions(chat, tmp_path):
    with HeldDouble() as server:
        first, second = (chat(server, HOME=str(tmp_path)) for _ in range(2))
        names = [
            re.search(r"\(New session \S+-(\d)\.\)", each.plain)[1] for each in (first, second)
        ]
        assert names == ["1", "2"]
        leave(first)
        leave(second)


def test_a_prompt_alone_is_not_kept(tmp_path):
    home = tmp_path / "home"
    with HeldDouble("done") as server:
        options = ["--base-url", server.base_url, "--prompt", "go"]
        with Screen(*options, cwd=tmp_path, HOME=str(home)) as screen:
            assert screen.status() == 0
    assert not home.exists()


def test_a_message_may_have_several_lines(chat, tmp_path):
    home = tmp_path / "home"
    with HeldDouble("one", "two", "three") as server:
        screen = chat(server, HOME=str(home))
        screen.enter("a line that\\")
        screen.expect(". ")
        screen.enter("goes on")
        screen.expect("one\r\n")
        screen.expect(PROMPT)
        if "\x1b[?2004h" in screen.output:  # this readline knows pastes
            screen.type("\x1b[200~pasted\n/clear\n  indented\n\x1b[201~")
            screen.enter("")
            screen.expect("two\r\n")
            assert said(server.requests[-1])[-1] == "pasted\n/clear\n  indented"
        leave(screen)
        assert said(server.requests[0]) == ["a line that\ngoes on"]
        history = home / ".agentloop" / "history"
        assert history.stat().st_mode & 0o777 == 0o600
        assert lines_of(history)[0] == '"a line that\\ngoes on"'
        screen = chat(server, HOME=str(home))
        history.write_text('"typed before"\n')
        screen.type(CTRL_D)
        assert screen.status() == 0
        screen = chat(server, HOME=str(home))
        screen.type(UP)
        screen.expect("typed before")
        screen.enter("!")
        wait_for(lambda: said(server.requests[-1]) == ["typed before!"])
        leave(screen)


def test_the_seconds_are_shown_while_it_waits_and_go_before_output(chat):
    hold = threading.Event()
    with HeldDouble([hold, "an answer"]) as server:
        screen = chat(server)
        screen.enter("go")
        wait_for(lambda: re.search(r"\x1b\[2m\d+ s\x1b\[0m", screen.output))
        hold.set()
        screen.expect("an answer\r\n")
        assert re.search(r"\d+ s\x1b\[0m\r\x1b\[Kan answer", screen.output)
        leave(screen)
        assert " s\r\x1b[K" not in screen.plain


@pytest.mark.slow
def test_a_chat_is_a_page_a_test_and_can_be_forked(chat, tmp_path):
    home, project = tmp_path / "home", tmp_path
    (project / "notes.txt").write_text("milk\n")
    turns = [("read", {"path": "notes.txt"})], "It is milk.", "Yes."
    with HeldDouble(*turns) as server:
        screen = chat(server, HOME=str(home))
        name = re.search(r"New session (\S+)\.\)", screen.plain)[1]
        screen.enter("what is to buy?")
        screen.expect("milk.\r\n")
        screen.enter("sure?")
        screen.expect("Yes.\r\n")
        leave(screen)

    def agentloop(*arguments):
        command = [sys.executable, "-m", "agentloop", *arguments]
        env = environment(HOME=str(home))
        return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)

    page = tmp_path / "page.html"
    assert agentloop("view", name, "-o", str(page)).returncode == 0
    assert "It is milk." in page.read_text(encoding="utf-8")
    test = home / "test_session.py"
    test.write_text(agentloop("replay", name, "--testcase").stdout)
    for content, status in (("milk\n", 0), ("beer\n", 1)):
        (project / "notes.txt").write_text(content)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name]
        env = environment(HOME=str(home))
        done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True)
        assert done.returncode == status, done.stdout
    with HeldDouble("I am another.", models=["other"]) as server:
        options = ["--at", "2", "--fork", "new", "--base-url", server.base_url]
        assert "I am another." in agentloop("replay", name, *options).stdout
        assert server.requests[0]["model"] == "other"
        assert results(server.requests[0])[0].endswith("1\tmilk")


def test_ways_to_leave(chat):
    with HeldDouble() as server:
        screen = chat(server)
        screen.type(CTRL_D)
        assert screen.status() == 0
        screen = chat(server)
        screen.type("half a line")
        screen.expect("half a line")
        screen.press_ctrl_c()
        screen.expect("once more leaves")
        screen.expect(PROMPT)
        screen.press_ctrl_c()
        assert screen.status() == 0


def test_without_a_model_the_demo_is_offered(tmp_path):
    with Screen("--ports", "{}", cwd=tmp_path) as screen:
        assert "OPENAI_API_KEY" in screen.expect("Play the demo? [y/N] > ")
        screen.enter("n")
        assert screen.status() == 2
    with Screen("--ports", "{}", cwd=tmp_path, TMPDIR=str(tmp_path)) as screen:
        screen.expect("Play the demo? [y/N] > ")
        screen.enter("y")
        screen.expect("The test passes.")
        assert screen.status() == 0


def test_a_prompt_is_answered_once_and_may_ask(tmp_path):
    with HeldDouble([LEDGER], "done") as server:
        options = ["--base-url", server.base_url, "--prompt", "go"]
        with Screen(*options, cwd=tmp_path) as screen:
            screen.expect(QUESTION)
            screen.enter("y")
            screen.expect("done\r\n")
            assert screen.status() == 0
    assert lines_of(tmp_path / "ledger") == ["ran"]


def test_ctrl_c_stops_a_summary_and_the_conversation_goes_on(chat):
    hold = threading.Event()
    with HeldDouble("one " * 200, [hold, "a summary"], "fine") as server:
        screen = chat(server)
        screen.enter("go")
        screen.expect("one \r\n")
        screen.enter("/compact")
        wait_for(lambda: len(server.requests) == 2)
        screen.press_ctrl_c()
        screen.expect("(Stopped; nothing was summarized.)")
        hold.set()
        screen.enter("more")
        screen.expect("fine\r\n")
        leave(screen)
        assert said(server.requests[-1]) == ["go", "more"]
