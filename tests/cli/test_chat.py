"""The chat, typed at in a real terminal: tmux draws what a person would see."""

import base64
import os
import re
import shlex
import signal
import threading
from pathlib import Path

import pytest

from agentloop import AssistantMessage
from agentloop.store import read_log
from tests.cli.held_double import HeldDouble
from tests.cli.tmux import Tmux, needs_tmux

pytestmark = needs_tmux
PROMPT, QUESTION = "\n> ", "or what to do instead >"
LEDGER = ("bash", {"command": "echo ran >> ledger"})
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


@pytest.fixture
def chat(tmp_path):
    """Starts a chat with a server that plays these turns, and waits for the prompt."""
    opened = []

    def start(*turns, options=(), server=None, wait=True, **more):
        if server is None:
            opened.append(server := HeldDouble(*turns))
            server.__enter__()
        more = {"cwd": tmp_path / "project", "home": tmp_path / "home"} | more
        for folder in (more["cwd"], more["home"]):
            folder.mkdir(exist_ok=True)
        screen = Tmux("--base-url", server.base_url, *options, **more)
        screen.server = server
        opened.append(screen)
        if wait:
            screen.expect("  context ")
        return screen

    yield start
    for each in reversed(opened):
        each.close() if isinstance(each, Tmux) else each.__exit__()


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def said(request, role="user"):
    return [each["content"] for each in request["messages"] if each["role"] == role]


def wait_for(condition, screen):
    """Waits until something holds that no output tells of."""
    while not condition():
        screen.expect("")


# ---- what is shown


def test_an_answer_is_drawn_markdown_as_it_comes(chat):
    hold = threading.Event()
    words = "several words that wrap at the end of a line " * 4
    text = f"# A heading\n\nSome **bold** text.\n\n{words}\n\n"
    screen = chat([text, hold, "- an item"], columns=60)
    assert "\nA heading\n" in screen.enter("go", "Some bold text.")
    assert "an item" not in screen.screen()
    assert "\x1b[1mbold" in screen.screen("-e")
    hold.set()
    shown = screen.expect(" • an item\n\nm")
    wrapped = re.search(r"^several.*?\n\n", shown, re.DOTALL | re.MULTILINE)[0]
    assert wrapped.split() == words.split(), "no word is broken"
    assert screen.leave() == 0


def test_a_call_is_one_line_and_a_long_result_is_folded_until_a_key_opens_it(chat):
    screen = chat([("bash", {"command": "seq 9101 9130"})], "done", options=["--yes"])
    shown = screen.enter("go", "done")
    folded = (
        "* bash seq 9101 9130\n  9101\n  9102\n  ... 25 lines more: Ctrl-O shows them\n  9128\n"
    )
    assert folded in shown
    assert "9115" not in shown
    screen.press("C-o")
    screen.expect("9115")


def test_a_running_command_streams_its_newest_lines(chat, project):
    os.mkfifo(project / "pipe")
    command = "for i in 1 2 3 4 5; do echo tick$i; done; cat pipe"
    screen = chat([("bash", {"command": command})], "done", options=["--yes"])
    shown = screen.enter("go", "tick5")
    assert "tick3" in shown
    assert "tick2\n" not in shown
    (project / "pipe").write_text("the end\n")
    assert "  ... " in screen.expect("the end") or True
    screen.expect("done")


def test_an_edit_is_a_coloured_diff_with_line_numbers(chat, project):
    (project / "a.py").write_text("".join(f"line{n}\n" for n in range(1, 30)))
    edit = ("edit", {"path": "a.py", "old_text": "line12\n", "new_text": "changed\n"})
    screen = chat([edit], "done", options=["--yes"])
    shown = screen.enter("go", "done")
    assert "   12 -line12\n   12 +changed\n" in shown
    assert "line9\n" not in shown, "only what is near"
    colours = screen.screen("-e")
    assert re.search(r"\x1b\[31m(\x1b\[49m)? +12 -line12", colours)
    assert re.search(r"\x1b\[32m(\x1b\[49m)? +12 \+changed", colours)


HOSTILE = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt.exe\u2066\u200b\r"


def test_nothing_hostile_reaches_the_terminal(chat, project):
    printed = f"printf %s {shlex.quote(HOSTILE)}"
    screen = chat(
        [*HOSTILE, "the text\n", (HOSTILE, {HOSTILE: HOSTILE})],  # a delta for each character
        [("bash", {"command": printed})],
        [("write", {"path": f"{HOSTILE}.txt", "content": HOSTILE})],
        "the end",
        [400, f"refused {HOSTILE}"],
        options=["--model", HOSTILE],
        wait=False,
    )
    screen.enter("go", "ZXZpbA", 2)
    screen.expect(QUESTION)
    screen.enter("y", "write")
    screen.enter("always", "the end")
    screen.enter("again", "The model failed:")
    raw = screen.raw.read_text("utf-8", "replace")
    ours = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\x1b[=>()][B0]?|\r+\n|\r|\x1b\[>4;\d+m", "", raw)
    assert not re.findall("[\x00-\x07\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", ours)
    assert "]52;" in ours  # spelled out
    assert "\x1b]52" not in raw


# ---- approval


def test_what_is_allowed_once_is_asked_for_again(chat, project):
    write = ("write", {"path": "new.txt", "content": "one\n"})
    screen = chat([LEDGER], [LEDGER], [write], "done")
    screen.enter("go", QUESTION)
    shown = screen.expect("│ echo ran >> ledger")
    assert "timeout" not in shown
    screen.enter("y", "│ echo ran >> ledger", 2)
    wait_for(lambda: lines_of(project / "ledger") == ["ran"], screen)
    screen.enter("no", "+one")
    screen.press("Enter")
    screen.expect("done")
    assert lines_of(project / "ledger") == ["ran"]
    assert not (project / "new.txt").exists()
    results = said(screen.server.requests[-1], "tool")
    assert results[0] == "[No output.]"
    assert all("not allowed" in each for each in results[1:])


def test_a_prefix_is_allowed_for_the_session_and_nothing_else(chat, project):
    calls = [("bash", {"command": f"echo {n} >> ledger"}) for n in "12"]
    plain = [("bash", {"command": f"touch {n}"}) for n in "123"]
    screen = chat([plain[0]], [plain[1], plain[2]], [calls[0]], "done")
    screen.enter("go", "always (touch *)")
    screen.enter("a", "always (this command)")
    assert {path.name for path in project.iterdir()} == {"1", "2", "3"}
    screen.enter("n", "done")
    assert not (project / "ledger").exists()


def test_edits_are_accepted_for_the_session_and_commands_are_not(chat, project):
    (project / "a").write_text("1")
    edit = ("edit", {"path": "a", "old_text": "1", "new_text": "2"})
    screen = chat([edit], [("write", {"path": "b", "content": "3"})], [LEDGER], "done")
    screen.enter("go", "always (each edit)")
    screen.enter("always", "echo ran")
    assert ((project / "a").read_text(), (project / "b").read_text()) == ("2", "3")
    screen.enter("no", "done")


def test_a_refusal_says_why_and_the_model_reads_it(chat, project):
    screen = chat([LEDGER], "I see.")
    screen.enter("go", QUESTION)
    screen.enter("write it in Python instead", "I see.")
    assert "write it in Python instead" in said(screen.server.requests[-1], "tool")[0]
    assert not (project / "ledger").exists()


def test_a_question_shows_all_and_is_not_answered_by_what_was_typed_before(chat, project):
    hold = threading.Event()
    command = f"echo {'x' * 300} # the\u200b end"
    screen = chat(["wait ", hold, ("bash", {"command": command})], "done", columns=60)
    screen.enter("go", "wait")
    screen.type("yes")
    screen.expect("> yes")
    hold.set()
    screen.expect(QUESTION)
    shown = screen.expect("\\u200b end")
    inside = "".join(re.findall(r"^│ (.*?) *│$", shown, re.MULTILINE))
    assert inside.replace(" ", "") == command.replace("\u200b", "\\u200b").replace(" ", "")
    screen.press("Enter")
    screen.expect("done")
    screen.expect("> yes")  # it waits again
    assert "not allowed" in said(screen.server.requests[-1], "tool")[0]


# ---- stopping


@pytest.mark.parametrize("key", ["C-c", "Escape"])
def test_a_stopped_answer_is_kept_as_far_as_it_came(chat, tmp_path, key):
    hold = threading.Event()
    screen = chat(["half of it", hold, " never"], "fine")
    screen.enter("go", "half of it")
    screen.press(key)
    screen.expect("(Stopped. /retry goes on.)")
    screen.enter("go on", "fine")
    hold.set()
    assert said(screen.server.requests[-1], "assistant") == ["half of it"]
    assert said(screen.server.requests[-1])[1] == "The user interrupted you here."
    shown = screen.enter("/view", "file://")
    page = re.search(r"file://(\S+(\n\S+)?\.html)", shown)[1].replace("\n", "")
    text = Path(page).read_text("utf-8")
    assert "half of it" in text
    assert "interrupted" in text
    [path] = tmp_path.rglob("*.jsonl")
    [cut_off, _] = [r for r in read_log(path) if isinstance(r, AssistantMessage)]
    assert cut_off.stop_reason == "interrupted"


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_stop_ends_a_tool_and_what_it_started(chat, project):
    command = "echo $$ > pid; sleep 300; echo ran >> ledger"
    screen = chat([("bash", {"command": command})], "fine", options=["--yes"])
    screen.enter("go")
    wait_for(lambda: lines_of(project / "pid"), screen)
    screen.press("Escape")
    screen.expect("(Stopped. /retry goes on.)")
    wait_for(lambda: is_gone(int(lines_of(project / "pid")[0])), screen)
    screen.enter("/retry", "fine")
    assert "outcome is unknown" in said(screen.server.requests[-1], "tool")[0]
    assert not (project / "ledger").exists()


def test_a_stop_at_a_question_denies(chat, project):
    screen = chat([LEDGER, LEDGER], "fine")
    screen.enter("go", QUESTION)
    screen.press("C-c")
    screen.expect("(Stopped. /retry goes on.)")
    screen.enter("go on", "fine")
    assert not (project / "ledger").exists()


def test_after_an_error_the_conversation_goes_on(chat):
    screen = chat([400, "no such thing"], "fine", "better", options=["--model", "some-model"])
    shown = screen.enter("go", "no such thing")
    [line] = [line for line in shown.splitlines() if "no such thing" in line]
    assert line.count("some-model") <= 1
    screen.enter("/retry", "fine")
    screen.enter("/retry", "nothing to go on with")
    screen.enter("another", "better")
    assert said(screen.server.requests[-1]) == ["go", "another"]


# ---- typing


def test_what_is_typed_while_an_answer_comes_waits_and_enter_sends_it_then(chat):
    hold = threading.Event()
    screen = chat(["first ", hold, "answer"], "second answer")
    screen.enter("go", "first")
    screen.type("and then")
    screen.expect("> and then")
    screen.press("Enter")
    screen.expect("Enter will send it")
    assert len(screen.server.requests) == 1
    hold.set()
    screen.expect("second answer")
    assert said(screen.server.requests[-1]) == ["go", "and then"]


def test_tab_completes_commands_sessions_and_files(chat, project):
    (project / "src").mkdir()
    (project / "src" / "widget.py").write_text("")
    screen = chat("one")
    screen.enter("first", "one")
    screen.type("/und")
    screen.press("Tab")
    screen.expect("> /undo")
    screen.press("C-u")
    screen.type("/resume ")
    screen.press("Tab")
    screen.expect("> /resume project-")
    screen.press("C-u")
    screen.type("look at @wid")
    screen.press("Tab")
    screen.expect("> look at @src/widget.py")


def test_what_was_typed_comes_back_with_up_and_ctrl_r_also_in_the_next_chat(chat, tmp_path):
    screen = chat("one", "two")
    screen.enter("the first question", "one")
    screen.enter("another one", "two")
    assert screen.leave() == 0
    screen = chat(server=screen.server)
    screen.press("Up")
    screen.press("Up")
    screen.expect("> another one")
    screen.press("C-u")
    screen.press("C-r")
    screen.type("first q")
    screen.expect("the first question")
    [history] = tmp_path.rglob("history")
    assert history.stat().st_mode & 0o077 == 0


def test_a_message_may_have_several_lines(chat):
    screen = chat("one", "two")
    screen.enter("a line that\\")
    screen.enter("goes on", "one\n\nm  context")
    screen.paste("pasted\n/clear\n  indented\n")
    screen.expect("indented")
    screen.press("Enter")
    screen.expect("two")
    assert said(screen.server.requests[-1]) == [
        "a line that\ngoes on",
        "pasted\n/clear\n  indented",
    ]


def test_an_image_goes_along_by_its_name_or_pasted(chat, project):
    (project / "shot one.png").write_bytes(PNG)
    (project / "two.png").write_bytes(PNG)
    screen = chat("I see both.")
    screen.paste(f"'{project}/shot one.png'")
    screen.expect("shot one.png")
    screen.type("@two.png")
    screen.press("Enter")
    screen.expect("I see both.")
    [content] = said(screen.server.requests[-1])
    kinds = [part["type"] for part in content]
    assert kinds == ["text", "image_url", "image_url"]
    data = base64.b64encode(PNG).decode()
    assert content[1]["image_url"]["url"] == f"data:image/png;base64,{data}"


def test_a_command_of_ones_own_is_read_by_the_model(chat, project):
    screen = chat("I have seen it.")
    screen.enter("!echo shown $((40 + 2))", "  shown 42")
    screen.enter("what was that?", "I have seen it.")
    told, asked = said(screen.server.requests[-1])
    assert "echo shown $((40 + 2))" in told
    assert "shown 42" in told
    assert asked == "what was that?"


def test_ctrl_c_at_an_empty_prompt_leaves_at_the_second_time(chat):
    screen = chat()
    screen.type("something")
    screen.expect("> something")
    screen.press("C-c")
    screen.press("C-c")
    screen.expect("Ctrl-C once more leaves")
    screen.press("C-c")
    assert screen.status() == 0


# ---- commands


def test_the_help_names_all_commands_and_what_is_none_shows_it(chat):
    screen = chat("one")
    shown = screen.enter("/nonsense", "/view")
    for name in ("clear", "compact", "context", "exit", "fork", "model", "resume", "undo"):
        assert f"\n/{name} " in shown
    screen.enter("/etc/hosts is a file", "one")  # no command


def test_undo_puts_the_prompt_back_and_says_that_files_stay(chat):
    screen = chat("first answer", "second answer", "third answer")
    screen.enter("first", "first answer")
    screen.enter("secnd", "second answer")
    screen.enter("/undo", "files stays")
    screen.expect("> secnd")
    screen.press("Left")
    screen.enter("o", "third answer")
    assert said(screen.server.requests[-1]) == ["first", "secnod"]


def test_the_status_line_says_what_fills_the_window(chat, project):
    (project / "AGENTS.md").write_text("A rule. " * 500)
    screen = chat("one")
    screen.enter("hello there", "one")
    shown = screen.expect("messages 12")
    status = re.findall(
        r"context ([\d,]+)  window 128,000  system ([\d,]+)  tools ([\d,]+)", shown
    )[-1]
    total, system, tools = (int(each.replace(",", "")) for each in status)
    assert system > 1000
    assert total >= system + tools
    screen.enter("/model other", "The model is other")
    screen.enter("/context", "tools: read, glob")


def test_compact_shows_its_summary(chat):
    long = "word " * 300
    screen = chat(long, "two", "three", "It was about **words**.")
    for prompt, answer in (("first", "word word"), ("second", "two"), ("third", "three")):
        screen.enter(prompt, answer)
    shown = screen.enter("/compact", "It was about words.")
    assert "tokens are now" in shown


# ---- sessions


def test_a_resumed_session_shows_its_last_exchange_and_several_are_picked_from(chat, tmp_path):
    screen = chat("one", "two", "three")
    server = screen.server
    screen.enter("first words", "one")
    screen.leave()
    screen = chat(server=server, options=["--resume"])
    shown = screen.expect("messages so far")
    assert "> first words\none" in shown
    screen.enter("/fork try", "-try now")
    screen.enter("in the fork", "two")
    screen.leave()
    screen = chat(server=server, options=["--resume"], wait=False)
    shown = screen.expect("Which session?")
    assert shown.index("-try") < shown.index("-1 "), "the newest first"
    screen.press("Enter")
    screen.expect("> in the fork")
    screen.enter("still there?", "three")
    assert said(server.requests[-1]) == ["first words", "in the fork", "still there?"]
    names = {path.stem.rpartition("-")[2] for path in tmp_path.rglob("*.jsonl")}
    assert names == {"1", "try"}


def test_a_session_goes_on_after_a_kill_in_the_middle_of_a_tool(chat, project):
    command = "echo $$ > pid; echo $PPID >> pid; echo ran >> ledger; exec sleep 300"
    screen = chat([("bash", {"command": command})], "fine", options=["--yes", "--session", "s"])
    screen.enter("go")
    wait_for(lambda: lines_of(project / "ledger"), screen)
    tool, chat_itself = map(int, lines_of(project / "pid"))
    os.kill(chat_itself, signal.SIGKILL)
    assert screen.status() == 128 + signal.SIGKILL
    os.kill(tool, signal.SIGKILL)  # nobody else is left to do it
    screen = chat(server=screen.server, options=["--session", "s"])
    screen.enter("/retry", "fine")
    assert "outcome is unknown" in said(screen.server.requests[-1], "tool")[0]
    assert lines_of(project / "ledger") == ["ran"]


def test_two_chats_in_a_folder_are_two_sessions_and_an_empty_one_leaves_no_file(chat, tmp_path):
    first = chat("one")
    second = chat(server=first.server)
    names = [re.search(r"Session (\S+):", each.screen())[1] for each in (first, second)]
    assert [name[-2:] for name in names] == ["-1", "-2"]
    third = chat(server=first.server, options=["--session", names[0]], wait=False)
    third.expect("is open in another terminal")
    assert third.status() == 2
    second.leave()
    first.enter("hello", "one")
    first.leave()
    assert [path.stem for path in tmp_path.rglob("*.jsonl")] == [names[0]]


def test_without_the_extra_the_chat_says_what_to_install(chat, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['rich'] = None\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}{os.pathsep}{os.getcwd()}"
    screen = chat("done", wait=False, PYTHONPATH=path)
    screen.expect("pip install 'agentloop-micro[chat]'")
    assert screen.status() == 2
    screen = chat(server=screen.server, options=["--prompt", "go"], wait=False, PYTHONPATH=path)
    screen.expect("done")
    assert screen.status() == 0
