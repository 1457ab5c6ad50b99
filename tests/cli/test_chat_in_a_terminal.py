"""The chat, driven through a real pseudo-terminal."""

import os
import re
import shlex
import signal
import threading
from contextlib import ExitStack

import pytest

pytest.importorskip("termios", reason="there are no pseudo-terminals here")

from tests.cli.held_double import HeldDouble
from tests.cli.screen import CTRL_D, Screen, wait_for

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


@pytest.fixture
def begin(chat):
    """Starts a chat with a server that plays these turns, and says `go`; gives the two."""
    with ExitStack() as stack:

        def start(*turns, options=(), **more):
            server = stack.enter_context(HeldDouble(*turns))
            screen = chat(server, *options, **more)
            screen.enter("go")
            return screen, server

        yield start


def leave(screen):
    screen.enter("/exit")
    assert screen.status() == 0


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def results(request):
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def said(request):
    return [message["content"] for message in request["messages"] if message["role"] == "user"]


def test_text_appears_before_the_reply_is_complete(begin):
    hold = threading.Event()
    screen, _ = begin(["the first half, ", hold, "the second half"])
    screen.expect("the first half, ")
    assert "second" not in screen.plain
    hold.set()
    screen.expect("the second half\r\n")
    screen.expect(PROMPT)
    leave(screen)


def test_what_is_allowed_runs_and_what_is_denied_does_not(begin, tmp_path):
    write = ("write", {"path": "new.txt", "content": "one\n\ttwo\n"})
    screen, server = begin([LEDGER], [LEDGER], [write], "done")
    assert "| echo ran >> ledger\r\n" in screen.expect(QUESTION)
    screen.enter("y", QUESTION)
    assert lines_of(tmp_path / "ledger") == ["ran"]
    shown = screen.enter("n", QUESTION)
    assert "  + one\r\n" in shown
    assert "  +     two\r\n" in shown
    screen.enter("maybe", QUESTION)  # is asked again
    screen.enter("", "done\r\n")
    leave(screen)
    assert lines_of(tmp_path / "ledger") == ["ran"]
    assert not (tmp_path / "new.txt").exists()
    first, second, third = results(server.requests[-1])
    assert first == "[No output.]"
    assert second.startswith("Denied")
    assert third.startswith("Denied")


def test_always_covers_what_it_says_and_nothing_else(begin, tmp_path):
    edit = ("edit", {"path": "a", "old_text": "1", "new_text": "2"})
    other = ("bash", {"command": "echo ran >> ledger && true"})
    write = ("write", {"path": "b", "content": "3"})
    (tmp_path / "a").write_text("1")
    screen, _ = begin([LEDGER], [LEDGER], [other], [edit], [write], "done")
    assert "always: this very command in this folder, until you" in screen.expect(QUESTION)
    screen.enter("a")
    assert "| echo ran >> ledger && true\r\n" in screen.expect(QUESTION)
    assert lines_of(tmp_path / "ledger") == ["ran"] * 2
    shown = screen.enter("n", QUESTION)
    assert "  - 1\r\n" in shown
    assert "  + 2\r\n" in shown
    assert "always: each write and edit of a file in this folder" in shown
    screen.enter("always", "done\r\n")
    leave(screen)
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("2", "3")
    assert lines_of(tmp_path / "ledger") == ["ran"] * 2


def test_always_for_a_command_ends_where_its_folder_does(begin, tmp_path):
    (tmp_path / "sub").mkdir()
    move = ("bash", {"command": "cd sub"})
    screen, _ = begin([LEDGER], [move], [LEDGER], "done")
    screen.expect(QUESTION)
    screen.enter("a", QUESTION)
    screen.enter("y")
    assert f"in {tmp_path / 'sub'}?" in " ".join(screen.expect(QUESTION).split())
    screen.enter("n", "done\r\n")
    leave(screen)
    assert not (tmp_path / "sub" / "ledger").exists()


def test_what_was_typed_before_a_question_does_not_answer_it(begin, tmp_path):
    hold = threading.Event()
    screen, server = begin(["wait for it ", hold, LEDGER], "done")
    screen.expect("wait for it ")
    for line in ("y", "a", "yes"):
        screen.enter(line)
        screen.expect(f"{line}\r\n")  # the terminal has it, and echoes it
    hold.set()
    screen.expect(QUESTION)
    screen.enter("n", "done\r\n")
    leave(screen)
    assert results(server.requests[-1])[0].startswith("Denied")
    assert not (tmp_path / "ledger").exists()


def test_ctrl_c_stops_a_reply_and_the_conversation_goes_on(begin):
    hold = threading.Event()
    screen, server = begin(["half of it", hold, " never"], "fine")
    screen.expect("half of it")
    screen.press_ctrl_c()
    screen.expect("(Stopped.")
    screen.expect(PROMPT)
    screen.enter("something else", "fine\r\n")
    leave(screen)
    hold.set()
    assert said(server.requests[-1]) == ["go", "The user interrupted you here.", "something else"]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_ctrl_c_stops_a_tool_and_what_it_started(begin, tmp_path):
    command = "echo $$ > pid; sleep 300; echo ran >> ledger"
    screen, server = begin([("bash", {"command": command})], "fine", options=["--yes"])
    wait_for(lambda: lines_of(tmp_path / "pid"))
    screen.press_ctrl_c()
    screen.expect("(Stopped.")
    wait_for(lambda: is_gone(int(lines_of(tmp_path / "pid")[0])))
    screen.enter("/retry", "fine\r\n")
    leave(screen)
    assert "outcome is unknown" in results(server.requests[-1])[0]
    assert said(server.requests[-1])[-1] == "The user interrupted you here."
    assert not (tmp_path / "ledger").exists()


def test_ctrl_c_at_a_question_denies_and_stops(begin, tmp_path):
    screen, server = begin([LEDGER, LEDGER], "fine")
    screen.expect(QUESTION)
    screen.press_ctrl_c()
    assert QUESTION not in screen.expect("(Stopped.")
    screen.expect(PROMPT)
    screen.enter("go on", "fine\r\n")
    leave(screen)
    first, second = results(server.requests[-1])
    assert first.startswith("Denied")
    assert second.startswith(("Denied", "Not run"))
    assert not (tmp_path / "ledger").exists()


def test_the_end_of_input_denies(begin, tmp_path):
    screen, _ = begin([LEDGER], "fine")
    screen.expect(QUESTION)
    screen.type(CTRL_D)
    screen.expect("fine\r\n")
    leave(screen)
    assert not (tmp_path / "ledger").exists()


def test_a_question_shows_all_of_a_long_argument(begin):
    command = f"echo {'x' * 500} # the end"
    screen, _ = begin([("bash", {"command": command})], "done", columns=60)
    shown = screen.expect(QUESTION)
    pieces = re.findall(r"^  \| (.*)\r$", shown, re.MULTILINE)
    assert "".join(pieces[:-1]) == command
    assert max(map(len, pieces)) <= 60
    screen.enter("n", "done\r\n")
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
        shown = screen.enter("go", QUESTION)
        assert r"\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt.exe\u2066\u200b" in shown
        assert "what cannot be shown is spelled out" in shown
        screen.enter("y", QUESTION)
        screen.enter("a", "the end\r\n")
        screen.enter("again", "The model failed:")
        leave(screen)
    ours = re.sub(r"\x1b\[(\d*m|K|C|A)|\x1b[=>]|\x1b\[\?1[hl]", "", screen.plain)
    ours = re.sub(r"\r+\n|^\r|\r(?=> )|(?<=> )\r", "", ours)
    assert not re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", ours)
    assert "]52;" in ours  # spelled out
    assert len(list(tmp_path.iterdir())) == 1  # the file is there, under its own bad name


def test_after_an_error_the_conversation_goes_on(begin):
    screen, server = begin([400, "no such thing"], "fine", "better")
    screen.expect("400: no such thing\r\n")
    screen.expect(PROMPT)
    screen.enter("/retry", "fine\r\n")
    screen.enter("/retry", "nothing to retry")
    screen.enter("another", "better\r\n")
    leave(screen)
    assert [said(request) for request in server.requests] == [["go"]] * 2 + [["go", "another"]]


def test_the_commands(chat):
    with HeldDouble("one", "two") as server:
        screen = chat(server)
        screen.enter("/help", "/clear")
        screen.enter("/nonsense", "There is no /nonsense")
        screen.enter("/etc/hosts is a file", "one\r\n")  # no command
        screen.enter("/usage", " tokens in")
        screen.enter("/clear", "A new conversation")
        screen.enter("hello", "two\r\n")
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
        screen.enter("/retry", "fine\r\n")
        leave(screen)
        assert "outcome is unknown" in results(server.requests[-1])[0]
        assert lines_of(tmp_path / "ledger") == ["ran"]
        screen = chat(server, "--session", "s", HOME=str(tmp_path))
        assert "(Session s: 4 messages so far.)" in screen.plain
        screen.enter("/clear", "(A new conversation. Session s begins afresh too.)")
        screen.enter("hello", "again\r\n")
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
        screen.enter("first words", "one\r\n")
        leave(screen)
        assert f"agentloop --session {name}-1)" in screen.plain.replace("\r\n", " ")
        screen = chat(server, HOME=str(home))
        assert f"(New session {name}-2.)" in screen.plain
        screen.enter("other words", "two\r\n")
        leave(screen)
        screen = chat(server, "--resume", HOME=str(home))
        assert f"(Session {name}-2: 2 messages so far.)" in screen.plain
        screen.enter("more words", "three\r\n")
        leave(screen)
        assert said(server.requests[-1]) == ["other words", "more words"]
        screen = chat(server, "--session", f"{name}-1", HOME=str(home))
        screen.enter("third", "four\r\n")
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
        screen.enter("a line that\\", ". ")
        screen.enter("goes on", "one\r\n")
        screen.expect(PROMPT)
        if "\x1b[?2004h" in screen.output:  # this readline knows pastes
            screen.type("\x1b[200~pasted\n/clear\n  indented\n\x1b[201~")
            screen.enter("", "two\r\n")
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
        screen.enter("y", "The test passes.")
        assert screen.status() == 0


def test_a_prompt_is_answered_once_and_may_ask(tmp_path):
    with HeldDouble([LEDGER], "done") as server:
        options = ["--base-url", server.base_url, "--prompt", "go"]
        with Screen(*options, cwd=tmp_path) as screen:
            screen.expect(QUESTION)
            screen.enter("y", "done\r\n")
            assert screen.status() == 0
    assert lines_of(tmp_path / "ledger") == ["ran"]
