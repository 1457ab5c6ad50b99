"""The chat in a real terminal: tmux types the keys and returns the screen."""

import base64
import json
import os
import re
import shlex
import shutil
import sys
import threading
import time
from contextlib import ExitStack

import pytest
from agentloop_chat.coding_agent import INTERRUPTED

from agentloop import AssistantMessage
from agentloop.common.store import read_log
from tests.programs.cli.command import run
from tests.programs.cli.held_double import HeldDouble

from .tmux import SECONDS, Tmux, needs_tmux

pytest.importorskip("prompt_toolkit", reason="the chat draws with prompt_toolkit and rich")
pytest.importorskip("rich", reason="the chat draws with prompt_toolkit and rich")
pytestmark = [needs_tmux, pytest.mark.slow]  # a real terminal: a second or two per test
QUESTION = "instruction >"
LEDGER = ("bash", {"command": "echo ran >> ledger"})
ROOTS = [os.getcwd(), os.path.join(os.getcwd(), "examples")]
SET = "import agentloop_chat.screen as screen\nscreen.GRACE, screen.LONG_RUN = {}, {}\n"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


@pytest.fixture
def chat(tmp_path):
    """Start a chat with a server that replays the turns, and wait for the prompt.

    grace: the seconds after the display of a question during which input belongs to a draft.
    long_run: the seconds of a run after which the terminal rings.
    """
    with ExitStack() as opened:

        def start(*turns, options=(), server=None, wait=True, grace=0.3, long_run=10, **more):
            server = server or opened.enter_context(HeldDouble(*turns))
            settings = tmp_path / "settings"
            settings.mkdir(exist_ok=True)
            (settings / "sitecustomize.py").write_text(SET.format(grace, long_run))
            more = {"cwd": tmp_path / "project", "home": tmp_path / "home"} | more
            more = {"PYTHONPATH": os.pathsep.join([str(settings), *ROOTS])} | more
            for folder in (more["cwd"], more["home"]):
                folder.mkdir(exist_ok=True)
            screen = Tmux("--base-url", server.base_url, "--model", "some-model", *options, **more)
            opened.callback(screen.close)
            screen.server = server
            if wait:
                screen.expect("Ctrl-D exits")
                screen.expect("\n>" if more.get("term") == "dumb" else "context ")
            return screen

        yield start


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def said(request, role="user"):
    return [each["content"] for each in request["messages"] if each["role"] == role]


def answer(screen, word, text=None, times=1):
    """Answer a question as soon as the prompt shows its label, then wait for the text."""
    screen.expect(QUESTION)
    return screen.enter(word, text, times)


def expect_prompt(screen):
    screen.wait(lambda shown: shown.rstrip().endswith("\n>"), "the prompt")


def say_hello(screen):
    """Wait for an answer. A chat prints its first prompt before it reads keys one by one."""
    screen.enter("hello", "one")
    expect_prompt(screen)


def ask_three(screen):
    """Send three prompts; the first has a long answer."""
    for prompt, answer in (("first", "word word"), ("second", "two"), ("third", "three")):
        screen.enter(prompt, answer)


def wait_for(condition, screen):
    """Wait for a condition that is not visible in the output."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, screen.screen()
        time.sleep(0.05)


def test_an_answer_is_rendered_as_markdown_while_it_is_streamed(chat):
    hold = threading.Event()
    words = "several words that wrap at the end of a line " * 4
    nested = "1. one\n\n   ```sh\n   inside\n\n   too\n   ```\n\n"
    text = f"## A heading\n\nSome **bold** text.\n\n{words}\n\n{nested}"
    screen = chat([*text, hold, "- an item"], columns=60)  # one delta per character
    assert "\nA heading\n" in screen.enter("go", "Some bold text.")
    assert "an item" not in screen.expect("too")
    assert "\x1b[1mbold" in screen.screen("-e")
    hold.set()
    shown = screen.expect(" • an item\n\nc")
    assert "```" not in shown
    wrapped = re.search(r"^several.*?\n\n", shown, re.DOTALL | re.MULTILINE)[0]
    assert wrapped.split() == words.split(), "words are not split"
    assert screen.leave() == 0


def test_a_running_command_of_the_agent_or_user_streams_its_newest_lines(chat, project):
    os.mkfifo(project / "pipe")
    command = "for i in 1 2 3 4 5 6 7 8 9; do echo tick$i; done; cat pipe"
    screen = chat([("bash", {"command": command})], "done", options=["--yes"])
    for line in ("go", f"!{command}"):
        shown = screen.enter(line, "\n  tick7\n  tick8\n  tick9\nEsc stops (")
        assert "tick6\n" not in shown
        (project / "pipe").write_text("the end\n")
        screen.expect("\nallow all  context")
    screen.enter("what was that?", "over.")
    [told] = [each for each in said(screen.server.requests[-1]) if "The user ran" in each]
    assert command in told
    assert "tick1" in told


def test_commands_of_the_user_get_all_variables(chat):
    screen = chat("done", DEPLOY_TOKEN="mine")
    screen.enter("!echo $DEPLOY_TOKEN", "\n  mine\n")


def test_a_blank_line_separates_replies_from_command_output(chat):
    screen = chat([("bash", {"command": "echo printed"})], "It printed.", options=["--yes"])
    shown = screen.enter("go", "It printed.\n\nallow all  context")
    assert "\n\n> go\n" in shown
    assert "\n  printed\n\nIt printed." in shown


def test_the_live_area_shows_the_last_state_of_a_progress_bar(chat, project):
    os.mkfifo(project / "pipe")
    bar = r"\r\033[32m%3d percent\033[0m"
    command = f"echo start; printf '{bar}' $(seq 100); cat pipe"
    screen = chat([("bash", {"command": command})], "done", options=["--yes"])
    screen.enter("go", "\n  start\n  100 percent\nEsc stops")
    (project / "pipe").write_text("")
    screen.expect("done")


def test_a_long_line_of_running_output_shows_its_end(chat, project):
    os.mkfifo(project / "pipe")
    command = "seq -s, 1 100; printf ' ready'; cat pipe"
    screen = chat([("bash", {"command": command})], "done", options=["--yes"])
    screen.enter("go", "98,99,100\n   ready\nEsc stops")
    (project / "pipe").write_text("")
    screen.expect("done")


def test_calls_edits_and_folded_results_are_rendered_and_a_key_unfolds_a_result(chat, project):
    (project / "a.py").write_text("".join(f"line{n}\n" for n in range(1, 30)))
    edit = ("edit", {"path": "a.py", "old_text": "line12\n", "new_text": "changed\n"})
    many, long = (("bash", {"command": f"seq {n}"}) for n in ("9101 9130", "-s ' ' 8000 8050"))
    screen = chat([many], [edit, long], "done", options=["--yes"])
    shown = screen.enter("go", "done")
    folded = "  9101\n  9102\n  ... 25 more lines (Ctrl-O)\n  9128\n  9129\n  9130\n"
    assert f"* bash seq 9101 9130\n{folded}" in shown
    assert "* edit a.py\n" in shown
    assert "\n      -line12\n   12 +changed\n" in shown
    assert "line9\n" not in shown, "only nearby lines"
    colours = screen.screen("-e")
    assert re.search(r"\x1b\[31m(\x1b\[49m)? +-line12", colours)
    assert re.search(r"\x1b\[32m(\x1b\[49m)? +12 \+changed", colours)
    for line, call in (("8049 8050", "seq -s"), ("9115", "seq 9101")):  # also a truncated line
        assert line not in screen.screen()
        screen.press("C-o")
        assert re.search(f"╭─+ bash {call}.*─+╮", screen.expect(line))


HOSTILE = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt.exe\u2066\u200b\r"


def test_hostile_control_characters_do_not_reach_the_terminal(chat):
    screen = chat(
        [*HOSTILE, "the text\n", (HOSTILE, {HOSTILE: HOSTILE})],
        [("bash", {"command": f"printf %s {shlex.quote(HOSTILE)}"})],
        [("write", {"path": f"{HOSTILE}.txt", "content": HOSTILE})],
        "the end",
        [400, f"refused {HOSTILE}"],
        options=["--model", HOSTILE],
        wait=False,
    )
    screen.enter("go", "ZXZpbA", 2)
    screen.expect(QUESTION)
    answer(screen, "y", "write")
    answer(screen, "always", "the end")
    screen.enter("again", "failed: 400: ")
    raw = screen.raw.read_text("utf-8", "replace")
    ours = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\x1b[=>()][B0]?|\r+\n|\r|\x1b\[>4;\d+m", "", raw)
    assert ours.count("\a") == 2, "the bell at both questions"
    assert not re.findall("[\x00-\x06\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", ours)
    assert "]52;" in ours  # escaped
    assert "\x1b]52" not in raw


def test_a_single_approval_is_requested_again_and_a_denial_includes_its_reason(chat, project):
    write = ("write", {"path": "new.txt", "content": "one\n"})
    screen = chat([LEDGER], [LEDGER], [write], "done")
    screen.enter("go", QUESTION)
    assert "timeout" not in screen.expect("│ echo ran >> ledger")
    screen.press("Enter")  # not an answer
    answer(screen, "y", "│ echo ran >> ledger", 2)
    wait_for(lambda: lines_of(project / "ledger") == ["ran"], screen)
    answer(screen, "no", "+one")
    answer(screen, "call it old.txt", "done")
    assert lines_of(project / "ledger") == ["ran"]
    assert not (project / "new.txt").exists()
    results = said(screen.server.requests[-1], "tool")
    assert results[0] == "[No output.]"
    assert "not allowed" in results[1]
    assert "call it old.txt" in results[2]


def test_always_approves_only_a_prefix_or_the_edits_of_this_session(chat, project):
    (project / "a").write_text("1")
    edit = ("edit", {"path": "a", "old_text": "1", "new_text": "2"})
    write = ("write", {"path": "b", "content": "3"})
    one, two, three = (("bash", {"command": f"ls {name}"}) for name in ("-l", "-a", "a"))
    screen = chat([one], [two, three], [edit], [write], [LEDGER], "done")
    screen.enter("go", "always (ls *)")
    answer(screen, "a", "always (each edit)")
    answer(screen, "always", "always (this command)")
    assert ((project / "a").read_text(), (project / "b").read_text()) == ("2", "3")
    answer(screen, "n", "done")
    assert not (project / "ledger").exists()


def test_a_draft_is_not_an_answer_to_a_question_and_enter_queues_the_draft(chat, project):
    hold = threading.Event()
    screen = chat(["wait ", hold, LEDGER], "done", "next answer")
    screen.enter("go", "wait")
    screen.type("make it really eas")
    screen.expect("> make it really eas")
    hold.set()
    screen.expect("│ echo ran >> ledger")
    screen.expect("A question awaits your answer")
    screen.enter("y", "next: make it really easy")
    assert not (project / "ledger").exists()
    answer(screen, "n", "next answer")
    assert not (project / "ledger").exists()
    assert said(screen.server.requests[-1])[-1] == "make it really easy"


def test_a_question_does_not_mention_a_draft_if_there_is_none(chat):
    screen = chat([LEDGER], "done")
    screen.enter("go", "│ echo ran >> ledger")
    screen.expect(QUESTION)
    assert b"Send or delete" not in screen.raw.read_bytes()
    answer(screen, "n", "done")


def test_keys_typed_while_a_question_appears_belong_to_a_draft(chat, project):
    hold = threading.Event()
    screen = chat(["wait ", hold, LEDGER], "done", "next answer", grace=2 * SECONDS)
    screen.enter("go", "wait")
    hold.set()
    screen.expect("│ echo ran >> ledger")
    screen.type("y")
    screen.press("Enter")
    screen.expect("next: y\n")
    assert not (project / "ledger").exists()


def test_a_question_shows_the_decoded_arguments_of_the_tool(chat, project):
    """Some servers encode the arguments, or a list in the arguments, twice as JSON."""
    (project / "a").write_text("1")
    edits = json.dumps([{"old_text": "1", "new_text": "42"}])
    wrapped = json.dumps({"command": "echo ran >> ledger"})
    screen = chat(
        [("bash", wrapped)], [("multi_edit", {"path": "a", "edits": edits})], [("bash", wrapped)]
    )
    screen.enter("go", "│ echo ran >> ledger")
    answer(screen, "a", "1 +42")
    answer(screen, "y", "The script is over.")
    assert lines_of(project / "ledger") == ["ran", "ran"]
    assert (project / "a").read_text() == "42"


@pytest.mark.parametrize("first", ["!echo ran > ledger", "/exit", "exit"])
def test_the_arguments_of_the_program_are_a_message_and_never_a_command(chat, project, first):
    screen = chat("done", options=[first])
    screen.expect("done")
    assert said(screen.server.requests[0]) == [first]
    assert not (project / "ledger").exists()


def test_a_folder_that_imitates_a_git_repository_starts_no_program(chat, project):
    evil = project / "docs"
    evil.mkdir()
    for folder in ("objects", "refs"):
        (evil / folder).mkdir()
    (evil / "HEAD").write_text("ref: refs/heads/main\n")
    (evil / "config").write_text('[core]\nworktree = "."\nfsmonitor = "touch ../ledger; false"\n')
    commands = ("git status", "cd docs && ls", "git status")
    screen = chat(*([("bash", {"command": command})] for command in commands), "done")
    screen.enter("go", "always (git status *)")
    answer(screen, "a", "always (this command)")
    answer(screen, "y", "done")
    assert not (project / "ledger").exists()


def test_a_question_shows_the_whole_command(chat):
    command = f"echo {'x' * 300} # the\u200b end"
    screen = chat([("bash", {"command": command})], "done", columns=60)
    screen.enter("go", QUESTION)
    shown = screen.expect("\\u200b end")
    inside = "".join(re.findall(r"^│ (.*?) *│$", shown, re.MULTILINE))
    assert inside.replace(" ", "") == command.replace("\u200b", "\\u200b").replace(" ", "")
    answer(screen, "no", "done")


def test_a_question_of_the_model_is_answered_by_the_next_input(chat, project):
    (project / "mine.py").write_text("from agentloop.toolkits.ask import ask_user\n")
    asked = {"question": "For how many?", "options": ["two", "four"]}
    turns = [("ask_user", asked)], "A table for four."
    screen = chat(*turns, options=["--tools", "mine.py"])
    shown = screen.enter("Book a table.", "four")
    assert "\nFor how many?\n" in shown
    assert " 1 two\n" in shown
    assert '"options"' not in shown
    assert "Stopped" not in shown
    assert "interrupted" not in shown
    screen.enter("2", "A table for four.")
    assert said(screen.server.requests[-1], "tool") == ["four"]


def test_a_path_answers_a_question_of_the_model(chat, project):
    (project / "mine.py").write_text("from agentloop.toolkits.ask import ask_user\n")
    screen = chat([("ask_user", {"question": "Where?"})], "done", options=["--tools", "mine.py"])
    screen.enter("go", "Where?\n")
    screen.enter("/tmp", "done")
    assert said(screen.server.requests[-1], "tool") == ["/tmp"]


def test_the_questions_of_a_turn_come_one_after_the_other(chat, project):
    (project / "mine.py").write_text("from agentloop.toolkits.ask import ask_user\n")
    questions = [("ask_user", {"question": text}) for text in ("How many?", "Which day?")]
    screen = chat(questions, "Booked.", options=["--tools", "mine.py"])
    shown = screen.enter("Book a table.", "How many?\n\ncontext")
    assert "Which day?" not in shown
    shown = screen.enter("four", "Which day?\n\ncontext")
    assert shown.count("How many?") == 1
    screen.enter("Friday", "Booked.")
    assert said(screen.server.requests[-1], "tool") == ["four", "Friday"]


def test_a_queued_message_does_not_answer_a_question_that_comes_later(chat, project):
    (project / "mine.py").write_text("from agentloop.toolkits.ask import ask_user\n")
    hold = threading.Event()
    turns = ["I'll ask. ", hold, ("ask_user", {"question": "Delete all?"})], "Fine.", "Tested."
    screen = chat(*turns, options=["--tools", "mine.py"])
    screen.enter("go", "I'll ask.")
    screen.enter("run the tests", "next: run the tests")
    hold.set()
    screen.expect("Delete all?\n\nnext: run the tests")
    screen.enter("/context", "tools: ")
    screen.enter("no", "Tested.")
    assert said(screen.server.requests[1], "tool") == ["no"]
    assert said(screen.server.requests[2])[-1] == "run the tests"


def test_the_first_text_sent_during_a_command_of_the_user_is_the_answer_after_it(chat, project):
    (project / "mine.py").write_text("from agentloop.toolkits.ask import ask_user\n")
    os.mkfifo(project / "pipe")
    asked = ("ask_user", {"question": "For how many?"})
    screen = chat([asked], "A table for four.", "By phone.", options=["--tools", "mine.py"])
    screen.enter("Book a table.", "\nFor how many?\n")
    screen.enter("!cat pipe", "Esc stops (")
    screen.enter("four", "next: four")
    screen.enter("call them", "next: call them")
    (project / "pipe").write_text("")
    screen.expect("By phone.")
    assert "next:" not in screen.screen()
    assert said(screen.server.requests[1], "tool") == ["four"]
    assert said(screen.server.requests[2])[-1] == "call them"


def test_a_text_begun_before_a_question_of_the_model_does_not_answer_it(chat, project):
    (project / "mine.py").write_text("from agentloop.toolkits.ask import ask_user\n")
    hold = threading.Event()
    turns = ["I'll ask. ", hold, ("ask_user", {"question": "Delete all?"})], "Fine.", "Tested."
    screen = chat(*turns, options=["--tools", "mine.py"])
    screen.enter("go", "I'll ask.")
    screen.type("run the tests")
    screen.expect("> run the tests")
    hold.set()
    screen.expect("Delete all?\n\ncontext")
    screen.press("Enter")
    screen.expect("next: run the tests")
    screen.enter("no", "Tested.")
    assert said(screen.server.requests[1], "tool") == ["no"]
    assert said(screen.server.requests[2])[-1] == "run the tests"


def test_an_open_question_is_shown_again_when_the_chat_is_continued(chat, project):
    (project / "mine.py").write_text("from agentloop.toolkits.ask import ask_user\n")
    options = ["--tools", "mine.py"]
    screen = chat([("ask_user", {"question": "How many?"})], "Booked.", options=options)
    screen.enter("Book a table.", "How many?")
    screen.leave()
    screen = chat(server=screen.server, options=[*options, "-c"])
    screen.expect("How many?\n\ncontext")
    screen.enter("four", "Booked.")


@pytest.mark.parametrize("bell", [True, False])
def test_the_terminal_rings_at_a_question_unless_the_bell_is_off(chat, tmp_path, bell):
    file = tmp_path / "home/.config/agentloop/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f"bell = {str(bell).lower()}\n")
    screen = chat([LEDGER], "done")
    assert "\a" not in screen.raw.read_text("utf-8", "replace")
    screen.enter("go", QUESTION)
    wait_for(lambda: ("\a" in screen.raw.read_text("utf-8", "replace")) == bell, screen)
    answer(screen, "y", "done")
    assert screen.raw.read_text("utf-8", "replace").count("\a") == bell, "not after a short run"


def test_the_terminal_rings_after_a_long_run(chat):
    screen = chat("one", "two", long_run=0)
    screen.enter("go", "one")
    wait_for(lambda: "\a" in screen.raw.read_text("utf-8", "replace"), screen)


@pytest.mark.parametrize("key", ["C-c", "Escape"])
def test_the_partial_text_of_an_interrupted_answer_is_retained_and_marked(chat, tmp_path, key):
    hold = threading.Event()
    screen = chat(["half of it", hold, " never"], "fine", options=["--session", "s"])
    screen.enter("go", "half of it")
    screen.press(key)
    screen.expect("(Stopped: interrupted.)")
    screen.enter("go on", "fine")
    hold.set()
    assert said(screen.server.requests[-1], "assistant") == ["half of it"]
    assert said(screen.server.requests[-1])[1] == "The user interrupted you here."
    screen.leave()
    [path] = tmp_path.rglob("s.jsonl")
    [cut_off, _] = [r for r in read_log(path) if isinstance(r, AssistantMessage)]
    assert cut_off.stop_reason == "interrupted"
    page = tmp_path / "page.html"
    assert run("view", str(path), "-o", str(page), cwd=tmp_path).returncode == 0
    assert re.search("half of it.*interrupted|interrupted.*half of it", page.read_text(), re.DOTALL)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("own", [False, True])
def test_an_interruption_ends_a_command_and_shows_its_output_to_user_and_model(chat, project, own):
    command = "echo $$ > pid; echo some output; sleep 300; echo ran >> ledger"
    screen = chat([("bash", {"command": command})], "fine", options=["--yes"])
    screen.enter(f"!{command}" if own else "go", "  some output")
    wait_for(lambda: lines_of(project / "pid"), screen)
    screen.press("Escape")
    screen.expect("(Stopped")
    screen.expect("  (interrupted)\n  some output\n")
    wait_for(lambda: is_gone(int(lines_of(project / "pid")[0])), screen)
    if own:
        screen.server.turns.pop(0)
    screen.enter("go on", "fine")
    told = "\n".join(map(str, said(screen.server.requests[-1])))
    assert "some output" in told.replace(command, "")
    if not own:
        assert "outcome is unknown" in said(screen.server.requests[-1], "tool")[0]
    assert not (project / "ledger").exists()


def test_an_interruption_denies_a_call_and_cancels_a_summary(chat, project):
    hold = threading.Event()
    screen = chat([LEDGER, LEDGER], "word " * 300, "two", "three", [hold])
    screen.enter("go", QUESTION)
    screen.press("C-c")
    screen.expect("(Stopped: interrupted.)")
    ask_three(screen)
    assert not (project / "ledger").exists()
    screen.enter("/compact", "Esc stops (")
    wait_for(lambda: len(screen.server.requests) == 5, screen)
    screen.press("C-c")
    screen.expect("(Stopped.)")
    hold.set()
    screen.enter("fourth", "over.")
    assert said(screen.server.requests[-1])[-4:] == ["first", "second", "third", "fourth"]


def test_enter_continues_the_run_after_an_error(chat):
    screen = chat([400, "no such thing"], "first answer", "second answer")
    shown = screen.enter("go", "\nsome-model failed: 400: no such thing\n")
    assert "{" not in shown, "only the provider's message"
    screen.expect("(The run was interrupted. Press Enter to continue.)")
    screen.press("Enter")
    screen.expect("first answer")
    assert said(screen.server.requests[-1]) == ["go"]
    screen.press("Enter")  # nothing to continue
    screen.enter("and then", "second answer")
    assert len(screen.server.requests) == 3


def test_the_text_of_an_interrupted_stream_is_retained_and_enter_continues(chat):
    screen = chat(["half of it", ConnectionError()], "the rest", "done")
    shown = screen.enter("go", "Press Enter to continue.)")
    assert re.search(r"\nhalf of it\n+some-model failed: the answer was interrupted: .*\n", shown)
    assert "{" not in shown
    screen.press("Enter")
    screen.expect("the rest")
    sent = screen.server.requests[-1]
    assert said(sent, "assistant") == ["half of it"]
    assert said(sent) == ["go", INTERRUPTED]


def test_a_run_that_ends_too_early_shows_a_remedy(chat):
    too_long = [400, "The maximum context length is 8192 tokens."]
    screen = chat(["half of", {"finish_reason": "length"}], *[too_long] * 3)
    screen.enter("go", "(Stopped: the answer reached the model's output limit")
    screen.enter("too much", "(Stopped: the conversation is too long for the model")


def test_a_resumed_chat_reports_a_kill_and_enter_continues(chat):
    screen = chat(["half of it", threading.Event()], "the answer")
    screen.enter("go", "half of it")
    screen.kill()
    screen = chat(server=screen.server, options=["-c"])
    shown = screen.expect("(The run was interrupted. Press Enter to continue.)")
    assert "> go" in shown
    screen.enter("/new", "-2: 0 messages.")
    screen.enter("/resume 1", "Press Enter to continue.)", 2)
    screen.press("Enter")
    shown = screen.expect("the answer")
    assert shown.count("Press Enter to continue.)") == 2, "one hint per interruption"
    assert said(screen.server.requests[-1]) == ["go"]


def test_alt_and_a_key_edit_a_command_and_stop_nothing(chat, project):
    screen = chat([("bash", {"command": "echo two >> ledger"})], "done")
    screen.enter("go", QUESTION)
    answer(screen, "e", "Enter runs >")
    screen.expect("Enter runs > echo two >> ledger")
    screen.press("M-BSpace", "M-b", "M-b")  # Option-Backspace and Option-Left of a Mac
    screen.type("one ")
    screen.expect("Enter runs > echo one two >>")
    screen.press("C-e")
    screen.enter("journal", "done")
    assert lines_of(project / "journal") == ["one two"]


def test_esc_during_an_answer_ends_a_search_of_the_history_first(chat):
    hold = threading.Event()
    screen = chat("one", ["half ", hold, "and half"])
    screen.enter("first", "one")
    screen.enter("go", "half")
    screen.press("C-r")
    screen.expect("(reverse-i-search)")
    screen.type("fir")
    screen.expect("`fir': first")
    screen.press("Escape")
    screen.expect("\n> first\n")
    screen.wait(lambda shown: "reverse-i" not in shown, "end of the search")
    hold.set()
    assert "Stopped" not in screen.expect("half and half")


def test_input_during_an_answer_is_queued_and_sent_one_entry_at_a_time(chat, project):
    hold = threading.Event()
    screen = chat(["first ", hold, "answer"], "second answer", "third answer")
    screen.enter("go", "first")
    waiting = ("!echo ran >> ledger", "what is on this", "and mroe", "not this")
    for nth, line in enumerate(waiting):
        screen.enter(line, "".join(f"\nnext: {each}" for each in waiting[: nth + 1]))
    screen.press("Escape")  # removes the last entry
    wait_for(lambda: "next: not this" not in screen.screen(), screen)
    screen.press("Up")  # edits the previous entry
    screen.expect("\n> and mroe")
    assert "next: and mroe" not in screen.screen()
    screen.press("BSpace", "BSpace", "BSpace")
    screen.type("ore")
    screen.press("Enter")
    screen.expect("\nnext: what is on this\nnext: and more\n")
    assert not (project / "ledger").exists(), "the command is still queued"
    assert len(screen.server.requests) == 1
    hold.set()
    screen.expect("third answer")
    assert lines_of(project / "ledger") == ["ran"]
    prompts = said(screen.server.requests[-1])
    assert (prompts[0], prompts[2:]) == ("go", ["what is on this", "and more"])
    assert "echo ran" in prompts[1]


def test_an_unknown_command_does_not_block_the_queue(chat):
    hold = threading.Event()
    screen = chat(["first ", hold, "answer"], "second answer")
    screen.enter("go", "first")
    screen.enter("/nonsense", "next: /nonsense")
    screen.enter("after it", "next: after it")
    hold.set()
    shown = screen.expect("second answer")
    assert "Unknown command /nonsense" in shown
    assert "\nCtrl-D " not in shown, "the help would scroll the error away"


def test_ctrl_c_stops_an_answer_and_queued_input_is_not_sent_but_can_be_recalled(chat):
    screen = chat(["half of it", threading.Event()], "fine")
    screen.enter("go", "half of it")
    screen.enter("and then", "\nnext: and then")
    screen.press("C-c")
    screen.expect("(Stopped: interrupted.)")
    screen.press("Up")
    screen.expect("\n> and then")
    assert len(screen.server.requests) == 1


def test_tab_completes_and_the_history_includes_earlier_chats(chat, project, tmp_path):
    (project / "src").mkdir()
    (project / "src" / "widget.py").write_text("")
    (project / "node_modules").mkdir()
    (project / "node_modules" / "widget.py").write_text("")
    screen = chat("one", "two")
    screen.enter("the first question", "one")
    screen.enter("another one", "two")
    whole = {"/und": "/undo", "/resume ": "/resume project-", "at @wid": "at @src/widget.py"}
    for typed, completed in whole.items():
        screen.type(typed)
        screen.press("Tab")
        screen.expect(f"> {completed}")
        screen.press("C-u")
    assert screen.leave() == 0
    screen = chat(server=screen.server)
    screen.press("Up", "Up")
    screen.expect("> another one")
    screen.press("C-u", "C-r")
    screen.type("first q")
    screen.expect("the first question")
    [history] = tmp_path.rglob("history")
    assert history.stat().st_mode & 0o077 == 0


def test_a_message_may_have_several_lines_and_a_paste_is_complete_during_output(chat):
    lines = "pasted\n/undo\n  indented\n"
    streamed = [f"paragraph {n}\n\n" for n in range(300)]
    screen = chat("one", [*streamed, threading.Event()], options=["--yes"])
    screen.enter("a line that\\")
    screen.enter("goes on", "one\n\nallow all  context")
    assert said(screen.server.requests[-1]) == ["a line that\ngoes on"]
    screen.enter("go", "paragraph")
    for _ in range(20):
        screen.paste(lines)
    screen.expect("  indented\npasted\n/undo")
    assert "next: " not in screen.screen()
    assert len(screen.server.requests) == 2


def test_an_image_is_attached_by_its_name_or_by_pasting(chat, project):
    for name in ("shot one.png", "number two.png"):
        (project / name).write_bytes(PNG)
    screen = chat("I see none.", "I see both.")
    assert "(three.png was not attached: no such file.)" in screen.enter(
        "@three.png", "I see none."
    )
    screen.paste(f"'{project}/shot one.png'")
    screen.expect("shot one.png")
    screen.type("@two")
    screen.press("Tab")
    screen.expect('@"number two.png"')
    screen.press("Enter")
    screen.expect("I see both.")
    named, content = said(screen.server.requests[-1])
    assert named == "@three.png"
    assert [part["type"] for part in content] == ["text", "image_url", "image_url"]
    data = base64.b64encode(PNG).decode()
    assert content[1]["image_url"]["url"] == f"data:image/png;base64,{data}"


def test_slash_commands_change_the_model_and_the_session(chat):
    screen = chat("one", "two", "three", "four", "five", options=["look", "at it"])
    screen.expect("> look at it\n\none")
    first = re.search(r"Session (\S+):", screen.screen())[1]
    screen.enter("/model other-model", "(Model: other-model.)")
    screen.enter("second", "two")
    assert [each["model"] for each in screen.server.requests] == ["some-model", "other-model"]
    screen.enter("/model gemini-2.5-flash", "of 1,048,576")
    screen.enter("/model other-model", "(Model: other-model.)", 2)
    screen.expect("of 128,000")
    for word, nth in (("/new", 2), ("/clear", 3)):
        screen.enter(word, f"(Session {first[:-1]}{nth}: 0 messages.")
        screen.enter(f"in {nth}", ("three", "four")[nth - 2])
        assert said(screen.server.requests[-1]) == [f"in {nth}"]
    assert screen.server.requests[-1]["model"] == "other-model"
    screen.enter(f"/resume {first}", "> second\n\ntwo")
    screen.enter("still there?", "five")
    assert said(screen.server.requests[-1]) == ["look at it", "second", "still there?"]


@pytest.mark.parametrize("leave", ["exit", "quit", "/quit", "C-c"])
def test_exit_commands_and_keys_end_the_chat(chat, leave):
    screen = chat()
    name = re.search(r"Session (\S+):", screen.screen())[1]
    if leave == "C-c":
        screen.type("something")
        screen.press("C-c", "C-c")
        screen.expect("(Press Ctrl-C again to exit.)")
        screen.press("C-c")
    else:
        screen.enter(leave)
    assert screen.status() == 0
    assert f"Continue: agentloop --session {name})" in screen.screen()


PAY = """
from agentloop import Agent, ScriptedModel, call, tool
from agentloop.toolkits.subagent import as_tool

@tool
def pay(amount: int) -> str:
    "Pays an amount."
    open("ledger", "a").write(f"{amount}\\n")
    return f"paid {amount}"

script = ScriptedModel([call("pay", amount=7), call("pay", amount=8)], "both are paid")
clerk = as_tool(Agent(llm=script, tools=[pay]), "clerk", "Pays.")
"""
ASK_PAY = 'rules = [["ask", "pay"]]\n'


@pytest.fixture
def payments(project, tmp_path):
    """A tool that pays, a sub-agent that pays twice, and a rule that asks before each payment."""
    (project / "mine.py").write_text(PAY)
    file = tmp_path / "home/.config/agentloop/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(ASK_PAY)
    return ["--tools", "mine.py"]


def test_e_edits_a_command_which_then_runs_and_the_model_reads_the_change(chat, project):
    screen = chat([LEDGER], "done")
    screen.enter("go", QUESTION)
    answer(screen, "e", "Enter runs > echo ran >> ledger")
    screen.press("C-u")
    screen.enter("echo edited >> ledger", "done")
    assert lines_of(project / "ledger") == ["edited"]
    [told] = said(screen.server.requests[-1], "tool")
    assert "echo edited >> ledger" in told


def test_ctrl_c_at_a_question_leaves_neither_a_warning_nor_the_answer_in_the_prompt(chat, project):
    screen = chat([LEDGER], "done")
    screen.enter("go", QUESTION)
    answer(screen, "e", "Enter runs > echo ran >> ledger")
    screen.press("C-c")
    assert "did not stop" not in screen.expect("(Stopped: interrupted.)")
    screen.enter("on", "done")
    assert said(screen.server.requests[-1])[-1] == "on"


def test_e_edits_other_arguments_as_json_and_wrong_ones_do_not_run(chat, project, payments):
    screen = chat([("pay", {"amount": 500})], "done", options=payments, EDITOR="sed -i s/500/50/")
    screen.enter("go", QUESTION)
    answer(screen, "edit", '"amount": 500\n}')
    screen.enter("x", "(Not run: ")
    assert lines_of(project / "ledger") == []
    screen.press("BSpace", "C-x", "C-e")
    screen.expect('"amount": 50\n')
    screen.press("Enter")
    screen.expect("done")
    assert lines_of(project / "ledger") == ["50"]


def test_e_shows_other_arguments_as_the_question_does(chat, project):
    screen = chat([("write", {"path": "a.txt", "content": "Grüße\u202e\x7f"})], "done")
    screen.enter("go", QUESTION)
    answer(screen, "e", '"content": "Grüße\\u202e\\u007f"\n}')
    screen.press("Enter")
    screen.expect("done")
    assert (project / "a.txt").read_text() == "Grüße\u202e\x7f"


def test_r_gives_a_call_a_result_that_the_user_writes(chat, project, payments):
    turns = [("pay", {"amount": 500})], "noted", [("clerk", {"prompt": "Pay both."})], "done"
    screen = chat(*turns, options=payments)
    screen.enter("go", QUESTION)
    answer(screen, "r", "the result for the model >")
    screen.enter("paid by hand", "noted")
    assert said(screen.server.requests[-1], "tool") == ["paid by hand"]
    screen.enter("both", "amount: 7 ")
    answer(screen, "respond", "the result for the model >")
    screen.enter("paid 7 by hand", "amount: 8 ")
    answer(screen, "y", "done")
    assert lines_of(project / "ledger") == ["8"]


def test_questions_about_a_sub_agents_calls_name_it_and_come_one_by_one(chat, project, payments):
    screen = chat([("clerk", {"prompt": "Pay both."})], "done", options=payments)
    screen.enter("go", "│ amount: 7 ")  # with so short a grace, the label may be drawn before
    shown = screen.expect(QUESTION)
    assert "─ pay of clerk ─" in shown
    assert "amount: 8" not in shown
    assert "always" not in shown, "a standing approval is about the agent's own calls"
    answer(screen, "y", "│ amount: 8 ")
    answer(screen, "no", "done")
    assert lines_of(project / "ledger") == ["7"]


@pytest.mark.parametrize("word", ["ok", "Sure", "yep.", "yes please"])
def test_common_affirmative_words_approve_a_call(chat, project, word):
    screen = chat([LEDGER], "done")
    screen.enter("go", QUESTION)
    answer(screen, word, "done")
    assert lines_of(project / "ledger") == ["ran"]


def test_the_chat_works_in_a_terminal_without_cursor_movement(chat, project):
    screen = chat("one", [LEDGER], "two", term="dumb")
    screen.enter("first", "one")
    screen.enter("second", QUESTION)
    answer(screen, "yes", "two")
    assert lines_of(project / "ledger") == ["ran"]
    assert not re.search(r"\x1b\[[\d;]*m", screen.raw.read_text()), "no colours"
    assert "\n(Session " in screen.screen(), "the prompt comes after the greeting"
    screen.enter("/exit")
    assert screen.status() == 0


def test_a_message_taken_back_is_not_sent_with_the_next_one_to_a_screen_reader(chat):
    screen = chat("one", "two", options=["--screen-reader"], wait=False)
    screen.expect("\n>")
    screen.enter("first", "one\n>")
    screen.enter("/undo", "Removed.")
    screen.expect("none.)\n>")
    screen.enter("second", "two\n>")
    assert said(screen.server.requests[-1]) == ["second"]


def test_ctrl_c_stops_an_answer_to_a_screen_reader_and_discards_what_was_typed(chat):
    hold = threading.Event()
    screen = chat([hold, "never"], "two", options=["--screen-reader"], wait=False)
    screen.expect("\n>")
    screen.enter("first")
    assert screen.server.arrived.acquire(timeout=SECONDS)
    screen.press("draft", "C-c")
    screen.expect("(Stopped: interrupted.)\n>")
    screen.enter("second", "two\n>")
    assert said(screen.server.requests[-1])[-1] == "second"
    hold.set()


def test_a_message_to_a_screen_reader_may_have_several_lines(chat):
    screen = chat("one", options=["--screen-reader"], wait=False)
    screen.expect("\n>")
    screen.enter("first\\", "\\\n>")
    screen.enter("second", "one\n>")
    assert said(screen.server.requests[-1]) == ["first\nsecond"]


def test_a_screen_reader_reads_the_mode_when_a_key_changes_it(chat):
    screen = chat(options=["--screen-reader"], wait=False)
    screen.expect("\n>")
    screen.press("BTab")
    screen.expect("(Mode: accept edits.)")
    screen.press("BTab")
    screen.expect("(Mode: plan.)")


def test_a_screen_reader_reads_a_list_of_sessions_and_the_number_selects_one(chat):
    screen = chat("one", "two", options=["--screen-reader"], wait=False)
    screen.expect("\n>")
    screen.enter("first", "one\n>")
    screen.enter("/new", "-2: ")
    screen.enter("second", "two\n>")
    screen.enter("/exit")
    assert screen.status() == 0
    options = ["--screen-reader", "--resume"]
    screen = chat(server=screen.server, options=options, wait=False)
    assert re.search(r"^1\. \S+-2 .* second\n2\. \S+-1 .* first", screen.expect("number:"), re.M)
    screen.enter("3", "number:", times=2)
    screen.enter("2", "> first")


def test_a_screen_reader_reads_plain_lines_in_order(chat):
    text = "# Title\n\nSome **bold** text.\n\n| a |\n|---|\n| b |"
    screen = chat(text, [LEDGER], "two", options=["--screen-reader"], wait=False, columns=60)
    screen.expect("\n>")
    shown = screen.enter("first", "| b |\n>")
    assert "first\n\n# Title\n\nSome **bold** text.\n\n| a |\n" in shown
    shown = screen.enter("second", QUESTION)
    assert shown.count("second") == 1
    wait_for(lambda: "\a" in screen.raw.read_text(), screen)
    assert "\nbash in" in shown
    assert "\necho ran >> ledger\n" in shown
    answer(screen, "yes", "two\n>")
    shown = screen.screen()
    assert not re.findall("[\u2500-\u257f]", shown), "no boxes"
    assert not re.search(r"\x1b\[[\d;]*m", screen.raw.read_text()), "no colours"


def test_no_word_is_broken_in_forty_columns(chat):
    words = "several words that the terminal has to wrap and internationalization"
    screen = chat(words, [LEDGER], "two", columns=40, rows=24)
    shown = screen.enter("go", "internationalization\n\ncontext")
    shown += screen.enter("/help", "A line that")
    shown += screen.enter("go", QUESTION)
    known = {*re.findall(r"\w+", words)} | {"instruction", "yes", "continue", "conversation"}
    assert known <= {*re.findall(r"\w+", shown)}
    assert not re.search(r"\bin\n *struction|inst\n", shown)
    answer(screen, "y", "two")


def test_a_question_shows_the_whole_name_of_a_file_in_forty_columns(chat, project):
    name = "a/folder/whose/name/is/longer/than/the/terminal/is/wide.txt"
    screen = chat([("write", {"path": name, "content": "x"})], "done", columns=40)
    shown = screen.enter("go", QUESTION)
    assert name in re.sub(r" *│\n│ ", "", shown)


def test_export_writes_a_page_of_the_session(chat, project):
    screen = chat("an answer")
    screen.enter("go", "an answer")
    screen.enter("/export page.html", "page.html: ")
    assert "an answer" in (project / "page.html").read_text()
    screen.enter("/export", "project-")
    wait_for(lambda: len([*project.glob("project-*.html")]) == 1, screen)


def test_ctrl_z_suspends_the_chat_and_fg_resumes_it(project, tmp_path):
    with HeldDouble("one", "two") as server:
        screen = Tmux(cwd=project, home=tmp_path, shell=True)
        try:
            command = [sys.executable, "-m", "agentloop", "--base-url", server.base_url, "-m", "m"]
            screen.type(shlex.join(command))
            screen.press("Enter")
            screen.expect("\ncontext ")
            screen.enter("first", "one")
            screen.type("half")
            screen.expect("> half")
            screen.press("C-z")
            screen.expect("Stopped")
            screen.type("echo $((40 + 2)); fg")
            screen.press("Enter")
            screen.expect("\n42\n")
            screen.expect("> half")
            screen.enter(" of it", "two")
            assert said(server.requests[-1]) == ["first", "half of it"]
        finally:
            screen.close()


def test_help_lists_commands_and_keys_and_undo_restores_the_prompt(chat):
    turns = "first answer", "second answer", "third answer", "fourth answer"
    screen = chat(*turns, columns=80)
    screen.enter("/nonsense", "(Unknown command /nonsense. /help lists the commands.)")
    screen.enter("/modle", "Unknown command /modle. Did you mean /model?")
    shown = screen.enter("/resume nowhere", "Other sessions:\nnone")
    assert "(No other session has a name that starts with nowhere.)" in shown
    shown = screen.enter("/help", "/undo ")
    for name in ("compact", "context", "exit", "fork", "resume", "undo"):
        assert f"\n/{name} " in shown
    listed = shown.partition("\n/clear")[2].partition("\n\n")[0].splitlines()
    for keys in ("Ctrl-D", "@PATH", "Ctrl-O", "Ctrl-X Ctrl-E", "Ctrl-B", "Shift-Tab", "Esc"):
        assert any(line.startswith(f"{keys} ") for line in listed)
    start = re.compile(r"/\w+ |!COMMAND|@PATH|[A-Z][\w-]* | {10}\w")
    assert [line for line in listed[1:] if not start.match(line)] == [], "no line is wrapped"
    screen.enter("/etc/hosts is a file", "first answer")  # not a command
    screen.enter("secnd", "second answer")
    screen.enter("/undo", "not restored")
    screen.expect("> secnd")
    screen.press("Left")
    screen.type("o")
    screen.expect("> secnod")
    screen.press("Enter")
    screen.expect("third answer")
    assert said(screen.server.requests[-1]) == ["/etc/hosts is a file", "secnod"]
    screen.type("something")
    screen.press("C-c")
    screen.enter("else", "fourth answer")
    assert said(screen.server.requests[-1])[-1] == "else"
    screen.press("C-d")
    assert screen.status() == 0


def test_a_queued_undo_retains_the_draft_and_up_shows_the_prompt(chat):
    hold = threading.Event()
    screen = chat(["half of it", hold], "fine")
    screen.enter("the first", "half of it")
    screen.enter("/undo", "next: /undo")
    screen.type("my draft")
    screen.expect("> my draft")
    hold.set()
    screen.expect("not restored")
    screen.press("Up")
    screen.expect("> the first")
    screen.press("Down")
    screen.expect("> my draft")
    screen.enter(" goes on", "fine")
    assert said(screen.server.requests[-1]) == ["my draft goes on"]


def test_the_status_line_shows_the_context_usage_and_compact_the_summary(chat, project):
    (project / "AGENTS.md").write_text("A rule. " * 500)
    screen = chat("word " * 300, "two", "three", "It was about **words**.")
    ask_three(screen)
    shown = screen.enter("/context", "tools: read, glob")
    wanted = r"context ([\d,]+) of 128,000: about ([\d,]+) system, ([\d,]+) tools, [\d,]+ messages"
    [filled] = re.findall(wanted, shown)
    total, system, tools = (int(each.replace(",", "")) for each in filled)
    assert system > 1000
    assert total >= system + tools
    assert f"\ncontext {total:,} of 128,000  some-model\n" in screen.expect("  some-model")
    shown = screen.enter("/compact", "It was about words.")
    assert "(The model writes a summary ...)\n(Summarized:)\n\nIt was about" in shown


def test_a_resumed_session_shows_its_last_exchange_and_can_be_selected(chat):
    screen = chat("one", "two", "three", "four")
    server = screen.server
    other = chat(server=server)
    names = [re.search(r"Session (\S+):", each.screen())[1] for each in (screen, other)]
    assert [name[-2:] for name in names] == ["-1", "-2"]
    other.leave()
    screen.enter("first words", "one")
    screen.leave()
    screen = chat(server=server, options=["--resume"])
    assert "> first words\n\none" in screen.expect(" messages. Ctrl-D")
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
    screen.enter("/resume nowhere", "Other sessions:")
    screen.enter(f"/resume {names[0]}", "> first words")
    screen.enter("and here?", "four")
    assert said(server.requests[-1]) == ["first words", "and here?"]


def test_a_session_is_resumed_by_a_name_prefix_and_a_fork_shows_its_origin(chat):
    screen = chat("one", "two", "three", "four", "five")
    shown = screen.enter("/undo", "contains no message to remove")
    assert "not restored" not in shown
    stem = re.search(r"Session (\S+)-1:", shown)[1]
    screen.enter("first words", "one")
    screen.enter("/fork try", "-try now")
    screen.enter("in the fork", "two")
    shown = screen.enter("/fork try", f"{stem}-try already exists:")
    assert "/resume try continues it." in " ".join(shown.split())
    assert "Errno" not in shown
    screen.enter("/fork trial", "-trial now")
    screen.enter("a trial", "three")
    screen.enter("/new", "0 messages", 2)
    screen.enter("/resume", f"Other sessions:\n{stem}-trial ")
    shown = screen.enter("/resume tr", "Other sessions:", 2)
    [names] = re.findall(r"/resume tr\n(.*)\n\n", shown, re.DOTALL)
    assert re.findall(r"-(\w+)  [\d-]+ [\d:]+  (.*)", names) == [
        ("trial", "a trial (began: first words)"),
        ("try", "in the fork (began: first words)"),
    ]
    screen.enter("/resume try", "> in the fork", 2)
    screen.enter("/resume try", "Other sessions:", 3)  # the session is already open
    screen.enter("and here?", "four")
    assert said(screen.server.requests[-1]) == ["first words", "in the fork", "and here?"]
    screen.enter(f"/resume {stem}-tri", "> a trial", 2)
    screen.enter("/resume 1", "> first words", 2)
    screen.enter("still alone?", "five")
    assert said(screen.server.requests[-1]) == ["first words", "still alone?"]


WRITE = ("write", {"path": "new.txt", "content": "one\n"})


def test_a_key_changes_the_approval_mode(chat, project):
    turns = [WRITE], "two", [WRITE, LEDGER], "three"
    screen = chat(*turns, options=["--session", "s"], columns=60)
    screen.press("BTab")
    screen.expect("\naccept edits  context ")
    screen.expect("  some-model\n>")  # nothing is truncated
    screen.enter("first", QUESTION, 0)
    screen.expect("two")
    assert (project / "new.txt").read_text() == "one\n"
    screen.press("BTab")
    screen.expect("\nplan  context ")
    screen.enter("second", "three")
    results = said(screen.server.requests[-1], "tool")[-2:]
    assert all("you may only read" in each for each in results)
    screen.press("BTab")
    screen.expect("\nask  context ")
    assert not (project / "ledger").exists()


def test_the_status_line_says_that_no_call_is_asked_about_until_a_key_changes_the_mode(chat):
    screen = chat(options=["--yes"])
    for mode in ("allow all", "accept edits", "plan", "ask", "allow all"):
        screen.expect(f"\n{mode}  context ")
        screen.press("BTab")


def test_accept_edits_mode_approves_edits_but_not_commands(chat, project):
    screen = chat([WRITE, LEDGER], "done")
    screen.press("BTab")
    screen.enter("go", "│ echo ran >> ledger")
    answer(screen, "n", "done")
    assert (project / "new.txt").exists()
    assert not (project / "ledger").exists()


def test_in_plan_mode_no_rule_or_standing_approval_permits_a_change(chat, project, tmp_path):
    own = tmp_path / "home" / ".config" / "agentloop"
    own.mkdir(parents=True)
    rules = '[["allow", "write"], ["ask", "bash", {command = "echo *"}]]'
    (own / "config.toml").write_text(f"rules = {rules}")
    read = ("read", {"path": "new.txt"})
    screen = chat([WRITE, LEDGER], "one", [WRITE, LEDGER, read], "two", [LEDGER], "three")
    screen.enter("first", "always (this command)")
    answer(screen, "a", "one")
    screen.press("BTab", "BTab")
    screen.expect("\nplan  context ")
    screen.enter("second", "two")
    written, ran, seen = said(screen.server.requests[-1], "tool")[-3:]
    assert "you may only read" in written
    assert "you may only read" in ran
    assert seen.endswith("one")
    screen.press("BTab")
    screen.expect("\nask  context ")
    screen.enter("third", "three")
    assert lines_of(project / "ledger") == ["ran", "ran"], "the rule and the approval apply again"


@pytest.mark.parametrize("sentence", ["look at it first", "请先运行测试"])
def test_an_unclear_word_is_queried_and_a_sentence_is_a_denial(chat, project, sentence):
    screen = chat([LEDGER], "done")
    screen.enter("go", QUESTION)
    screen.enter("yess", "(yess? ")
    assert len(screen.server.requests) == 1
    screen.enter(sentence, "done")
    assert sentence in said(screen.server.requests[-1], "tool")[0]
    assert not (project / "ledger").exists()


@pytest.mark.parametrize("is_one_line", [False, True])
def test_the_question_about_a_long_command_is_visible_and_a_pager_shows_the_rest(
    chat, project, is_one_line
):
    command = "echo ran >> ledger" + (" " if is_one_line else "\n").join(["", *["# nothing"] * 600])
    turns = [("bash", {"command": f"{command} the end"})], "done"
    screen = chat(*turns, columns=80, rows=24, PAGER="less")
    screen.enter("go", QUESTION)
    screen.expect("more lines (Ctrl-O)")
    visible = screen.do("capture-pane", "-p")
    assert re.search("╭─+ bash.* in /", visible)
    assert "│ echo ran >> ledger" in visible
    assert QUESTION in visible
    screen.press("C-o")
    wait_for(lambda: QUESTION not in screen.do("capture-pane", "-p"), screen)
    screen.press("G")
    wait_for(lambda: "the end" in screen.do("capture-pane", "-p"), screen)
    screen.press("q")
    answer(screen, "no", "done")
    assert not (project / "ledger").exists()


def test_a_long_folded_line_opens_in_a_pager(chat):
    command = "seq -s ' ' 1 2000; echo the end"
    screen = chat(
        [("bash", {"command": command})], "done", options=["--yes"], rows=24, PAGER="less"
    )
    screen.enter("go", "done")
    screen.press("C-o")
    wait_for(lambda: "done" not in screen.do("capture-pane", "-p"), screen)
    screen.press("G")
    wait_for(lambda: "the end" in screen.do("capture-pane", "-p"), screen)
    screen.press("q")
    screen.expect("\nallow all  context")


def test_ctrl_c_in_the_pager_ends_neither_the_chat_nor_the_draft(chat):
    screen = chat([("bash", {"command": "seq 500"})], "the end", options=["--yes"], PAGER="less")
    screen.enter("go", "the end")
    screen.type("my draft")
    screen.press("C-o")
    wait_for(lambda: "\n20\n" in screen.do("capture-pane", "-p"), screen)  # the pager shows it
    screen.press("C-c")
    screen.press("C-c")
    screen.press("q")
    wait_for(lambda: "> my draft" in screen.do("capture-pane", "-p"), screen)


def test_an_invalid_call_requires_no_approval(chat, project):
    (project / "a.py").write_text("one\n")
    wrong = ("edit", {"path": "a.py", "old_text": "two", "new_text": "three"})
    unread = ("write", {"path": "a.py", "content": "three\n"})
    misspelt = ("edit", {"file": "a.py"})
    screen = chat([wrong], [unread], [misspelt], "I give up.")
    assert QUESTION not in screen.enter("go", "I give up.")
    found, read_first, missing = said(screen.server.requests[-1], "tool")
    assert "a.py" in found
    assert "read it first" in read_first
    assert "path" in missing
    assert not any("not allowed" in each for each in (found, read_first, missing))


def test_several_edits_are_shown_as_one_diff(chat, project):
    (project / "a.py").write_text("one\ntwo\n")
    edits = [{"old_text": old, "new_text": old.upper()} for old in ("one", "two")]
    screen = chat([("multi_edit", {"path": "a.py", "edits": edits})], "done")
    screen.enter("go", QUESTION)
    shown = screen.expect("+TWO")
    for line in ("-one", "-two", "+ONE", "+TWO"):
        assert line in shown
    answer(screen, "y", "done")
    assert (project / "a.py").read_text() == "ONE\nTWO\n"


def test_a_long_pasted_instruction_at_a_question_reaches_the_model(chat):
    screen = chat([LEDGER], "done")
    screen.enter("go", QUESTION)
    screen.paste("\n".join(f"instruction {number}" for number in range(20)))
    screen.expect("[paste 1: 20 lines]")
    screen.press("Enter")
    screen.expect("\ndone\n")
    assert "instruction 19" in said(screen.server.requests[-1], "tool")[0]


def test_an_edit_of_text_that_an_earlier_call_writes_is_shown_as_its_arguments(chat, project):
    first = ("write", {"path": "a.py", "content": "one\n"})
    second = ("edit", {"path": "a.py", "old_text": "one", "new_text": "rm -rf"})
    screen = chat([first, second], "done")
    screen.enter("go", QUESTION)
    answer(screen, "y", "call 2 of 2")
    screen.expect("new_text: rm -rf")
    answer(screen, "y", "done")
    assert (project / "a.py").read_text() == "rm -rf\n"


def test_an_edit_that_only_adds_the_last_line_end_is_shown_as_its_arguments(chat, project):
    (project / "a.py").write_text("one\ntwo")
    screen = chat([("edit", {"path": "a.py", "old_text": "two", "new_text": "two\n"})], "done")
    screen.enter("go", "new_text: two")
    answer(screen, "y", "done")
    assert (project / "a.py").read_text() == "one\ntwo\n"


def test_a_file_named_in_a_prompt_is_attached_and_not_shown(chat, project):
    (project / "a.py").write_text("answer = 42\n")
    (project / "b.bin").write_bytes(b"\0\1")
    screen = chat("I see.", "Again.")
    (project / "c.png").write_bytes(PNG)
    prompt = "what is in @a.py, and in @b.bin? @c.png, @d.py. Ask @anna."
    shown = screen.enter(prompt, "I see.")
    assert "(a.py is attached: 12 bytes.)" in shown
    assert "(b.bin was not attached: the file is binary.)" in shown
    assert "(c.png is attached: " in shown
    assert "(d.py was not attached: no such file.)" in shown
    assert "anna.)" not in shown
    assert "answer = 42" not in shown
    assert "answer = 42" in str(said(screen.server.requests[0]))
    screen.enter("/undo", "not restored")
    screen.expect(f"> {prompt}")
    assert "answer = 42" not in screen.screen()


def test_the_memory_files_of_the_repository_and_of_the_user_are_read(chat, project, tmp_path):
    (project / ".git").mkdir()
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    own = tmp_path / "home" / ".config" / "agentloop"
    own.mkdir(parents=True)
    texts = {
        own / "AGENTS.md": "of the user",
        tmp_path / "AGENTS.md": "above the repository",
        project / "AGENTS.md": "of the root",
        project / "CLAUDE.md": "for another program",
        below.parent / "CLAUDE.md": "of src",
        below / "AGENTS.md": "of deep",
    }
    for path, text in texts.items():
        path.write_text(text)
    screen = chat("done", cwd=below)
    screen.enter("go", "done")
    memory = str(screen.server.requests[0]["messages"][1])
    places = [memory.find(each) for each in ("of the user", "of the root", "of src", "of deep")]
    assert sorted(places) == places
    assert places[0] > 0
    assert "above the repository" not in memory
    assert "another program" not in memory


def test_a_cd_of_the_user_does_not_change_the_folder_of_the_agent(chat, project):
    (project / "sub").mkdir()
    screen = chat([("bash", {"command": "pwd"})], "done", options=["--yes"])
    screen.enter("!cd sub", "[No output.]")
    screen.enter("!pwd", f"{project}/sub\n")
    screen.enter("go", "done")
    assert said(screen.server.requests[-1], "tool") == [str(project)]


def test_a_long_paste_is_folded_until_it_is_sent(chat):
    text = "".join(f"pasted {n}\n" for n in range(300))
    screen = chat("I see.", columns=80, rows=24)
    screen.type("look: ")
    screen.paste(text)
    screen.expect("> look: [paste 1: 301 lines]")
    screen.press("Enter")
    screen.expect("I see.")
    assert "pasted 17" not in screen.screen()
    assert said(screen.server.requests[0]) == [f"look: {text}"]


def test_a_prompt_of_an_earlier_chat_says_that_its_paste_is_missing(chat):
    screen = chat("one", "two")
    screen.paste("pasted\n" * 20)
    screen.expect("lines]")
    screen.press("Enter")
    assert "again" not in screen.expect("one")
    screen.leave()
    screen = chat(server=screen.server)
    screen.press("Up", "Up")
    screen.expect("> [paste 1: 21 lines]")
    screen.press("Enter")
    assert "paste the text again" in screen.expect("two")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_the_question_about_a_long_change_is_visible_and_a_pager_shows_the_rest(
    chat, project, columns, rows
):
    text = "".join(f"line {n}\n" for n in range(10_000))
    write = ("write", {"path": "new.txt", "content": text})
    screen = chat([write], "done", columns=columns, rows=rows, PAGER="less")
    screen.enter("go", QUESTION)
    screen.expect("more lines (Ctrl-O)")
    visible = screen.do("capture-pane", "-p")
    assert re.search("╭─+ write new.txt ─+╮", visible)
    assert "line 9999" in visible, "the end of a change is shown, too"
    assert QUESTION in visible
    screen.press("C-o")
    wait_for(lambda: QUESTION not in screen.do("capture-pane", "-p"), screen)
    screen.press("G")
    wait_for(lambda: "line 9999" in screen.do("capture-pane", "-p"), screen)
    screen.press("q")
    answer(screen, "y", "done")
    assert (project / "new.txt").read_text() == text


def test_a_resumed_chat_names_the_call_with_an_unknown_outcome(chat, project):
    command = "echo started > ledger; sleep 300"
    screen = chat([("bash", {"command": command})], "I look.", options=["--yes"])
    screen.enter("go", f"* bash {command}")
    wait_for(lambda: lines_of(project / "ledger"), screen)
    screen.kill()
    screen = chat(server=screen.server, options=["-c"])
    shown = screen.expect("Press Enter to continue.)")
    assert f"(Interrupted call with unknown outcome: bash {command})" in shown
    screen.press("Enter")
    screen.expect("I look.")
    assert "outcome is unknown" in said(screen.server.requests[-1], "tool")[0]


def test_background_commands_are_listed_and_end_with_the_chat(chat, project):
    command = "echo $$ > pid; sleep 300"
    screen = chat([("bash", {"command": command, "background": True})], "done", options=["--yes"])
    screen.enter("go", "done")
    shown = screen.expect("\nbackground command ")
    id = re.search(r"Its id is (\w+)\.", shown)[1]
    assert f"background command {id}: {command}" in shown
    wait_for(lambda: lines_of(project / "pid"), screen)
    assert screen.leave() == 0
    wait_for(lambda: is_gone(int(lines_of(project / "pid")[0])), screen)


SERVER = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.05)
from mcp.server import MCPServer

server = MCPServer("mine")

@server.tool()
def secret() -> str:
    "Say the secret."
    return "xyzzy"

server.run()
"""


def test_mcp_servers_start_in_the_background_and_a_message_waits_for_them(chat, project):
    pytest.importorskip("mcp")
    (project / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": ["server.py"], "env": {"PYTHONPATH": os.getcwd()}}
    (project / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": server}}))
    screen = chat("done", options=["--mcp", "mcp.json"])
    screen.enter("go", "Esc stops (")
    assert not screen.server.requests
    (project / "go").touch()
    screen.expect("done")
    names = [each["function"]["name"] for each in screen.server.requests[0]["tools"]]
    assert "mine__secret" in names


def test_an_interruption_while_mcp_servers_start_restores_the_message(chat, project):
    pytest.importorskip("mcp")
    (project / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": ["server.py"], "env": {"PYTHONPATH": os.getcwd()}}
    (project / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": server}}))
    screen = chat("done", options=["--mcp", "mcp.json"])
    screen.enter("what is here", "Esc stops (")
    screen.press("Escape")
    screen.expect("(Stopped.)")
    screen.expect("\n> what is here\n", 2)
    (project / "go").touch()
    screen.enter("?", "done")
    assert said(screen.server.requests[0]) == ["what is here?"]


def test_a_key_moves_a_running_command_to_the_background(chat, project):
    os.mkfifo(project / "pipe")
    command = "echo started; cat pipe; echo ran >> ledger"
    screen = chat([("bash", {"command": command})], "I go on.", "two", options=["--yes"])
    screen.enter("go", "\n  started\nEsc stops (")
    screen.press("C-b")
    screen.expect("I go on.")
    screen.expect("\nbackground command ")
    result = said(screen.server.requests[-1], "tool")[0]
    assert "In the background. Its id is " in result
    assert "started" in result
    screen.enter("ab", "> ab")
    screen.expect("two")
    screen.type("ac")
    screen.press("C-b")  # moves the cursor unless a command runs
    screen.type("b")
    screen.expect("> abc")
    (project / "pipe").write_text("")
    wait_for(lambda: lines_of(project / "ledger") == ["ran"], screen)


def test_a_message_can_be_written_in_an_editor(chat, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "in two" > "$1"\necho lines >> "$1"\n')
    editor.chmod(0o755)
    screen = chat("done", VISUAL=str(editor))
    screen.type("draft")
    screen.press("C-x", "C-e")
    screen.expect("> in two\n")
    screen.press("Enter")
    screen.expect("done")
    assert said(screen.server.requests[0]) == ["in two\nlines"]


def test_the_chat_works_without_a_session_if_the_home_folder_is_not_writable(chat, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".agentloop").touch()  # root may write into any folder
    screen = chat("one", "two", wait=False)
    screen.expect("This chat is not saved")
    screen.expect("\ncontext ")
    screen.enter("first", "one")
    screen.press("Up")
    screen.expect("\n> first\n")
    screen.press("C-u")
    screen.enter("/new", "(Session not saved: 0 messages.", 2)
    screen.enter("second", "two")
    assert said(screen.server.requests[-1]) == ["second"]
    assert screen.leave() == 0
    assert "Continue:" not in screen.screen()


def test_a_history_file_that_cannot_be_read_does_not_keep_enter_from_working(chat, tmp_path):
    (tmp_path / "home/.agentloop/history").mkdir(parents=True)  # root may read any file
    screen = chat("zero")
    screen.press("Up")
    screen.enter("hello", "zero")


def test_a_history_file_that_cannot_be_written_does_not_keep_enter_from_working(chat, tmp_path):
    screen = chat("zero", "one", "two")
    screen.enter("hello", "zero")  # the history has been loaded
    history = tmp_path / "home/.agentloop/history"
    history.unlink(missing_ok=True)
    history.mkdir()  # root may write into any file
    screen.enter("first", "one")
    screen.press("Up")
    screen.expect("\n> first\n")
    screen.press("C-u")
    screen.enter("second", "two")
    assert screen.leave() == 0


@pytest.mark.skipif(not shutil.which("prlimit"), reason="prlimit is not installed")
def test_a_full_disk_is_reported_and_the_chat_goes_on_when_there_is_room_again(chat):
    screen = chat("done")
    limit = "prlimit --fsize={}: --pid $PPID"  # of the chat, and so of its session
    screen.enter(f"!echo printed; {limit.format(1)}", "File too large")
    screen.expect("\ncontext ")
    screen.enter(f"!{limit.format('unlimited')}", "[No output.]")
    screen.enter("go", "done")
    assert "go" in said(screen.server.requests[0])


@pytest.mark.parametrize("size", [(60, 20), (140, 45)])
def test_a_resize_during_an_answer_loses_no_word(chat, size):
    hold = threading.Event()
    words = [f"word{number} " for number in range(200)]
    screen = chat([*words[:100], hold, *words[100:]], columns=80, rows=24)
    screen.enter("go", "word99")
    screen.do("resize-window", "-x", str(size[0]), "-y", str(size[1]))
    hold.set()
    screen.expect("word199\n\ncontext")  # during the answer, there's a line between them
    found = re.findall(r"word\d+", screen.screen("-J"))  # -J joins wrapped lines
    assert found[-200:] == [word.strip() for word in words]


def test_a_local_model_is_offered_once(chat, tmp_path):
    with HeldDouble("one", "two") as server:
        server.models = ["first-model", "second-model", "third\nmodel"]
        port = server.server_port
        (tmp_path / "sitecustomize.py").write_text(
            f"import agentloop_chat.config as config\nconfig.PORTS = (1, {port})\n"
        )
        more = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *ROOTS])}
        (tmp_path / "project").mkdir()
        where = {"cwd": tmp_path / "project", "home": tmp_path / "home"}
        where["home"].mkdir()
        screen = Tmux(**where, **more)
        try:
            shown = screen.expect(f"second-model at http://localhost:{port}/v1")
            assert "third" not in shown, "its name has a control character"
            screen.press("Down", "Enter")
            screen.expect("\ncontext ")
            screen.enter("go", "one")
        finally:
            screen.close()
        screen = Tmux(**where, **more)
        try:
            screen.expect("\ncontext ")
            screen.enter("go", "two")
        finally:
            screen.close()
    assert [each["model"] for each in server.requests] == ["second-model", "second-model"]


def test_session_titles_are_escaped_in_the_selection(chat):
    screen = chat("one", "two")
    for number in (1, 2):
        screen.paste(f"{number} {HOSTILE}")
        screen.press("Enter")
        screen.expect(("one", "two")[number - 1])
        screen.enter("/new", "0 messages", number + 1)
    screen.leave()
    screen = chat(server=screen.server, options=["--resume"], wait=False)
    screen.expect("Which session?")
    wait_for(lambda: b"]52;" in screen.raw.read_bytes(), screen)
    raw = screen.raw.read_text("utf-8", "replace")
    assert "\x1b]52" not in raw
    assert not re.findall("[\u202a-\u202e\u2066-\u2069]", raw)


def test_a_closed_terminal_ends_the_chat_and_its_command(chat, project):
    command = "echo $$ > pid; sleep 300"
    screen = chat([("bash", {"command": command})], options=["--yes"])
    screen.enter("go", f"* bash {command}")
    wait_for(lambda: lines_of(project / "pid"), screen)
    pid = int(lines_of(project / "pid")[0])
    screen.do("kill-server")
    while not is_gone(pid):
        time.sleep(0.05)


def test_without_the_extra_the_error_contains_the_install_command(chat, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['rich'] = None\n")
    path = os.pathsep.join([str(tmp_path), *ROOTS])
    screen = chat("done", wait=False, PYTHONPATH=path)
    screen.expect("pip install 'prompt_toolkit")
    assert screen.status() == 2
    screen = chat(server=screen.server, options=["--prompt", "go"], wait=False, PYTHONPATH=path)
    screen.expect("done")
    assert screen.status() == 0


def test_a_pasted_path_attaches_nothing_and_a_typed_outside_path_is_confirmed(
    chat, project, tmp_path
):
    (project / "shop.py").write_text("inside = 1\n")
    (tmp_path / "secret.txt").write_text("outside = 2\n")
    screen = chat("one", "two", "three")
    screen.type("why? ")
    screen.paste("error in @shop.py and @../secret.txt")
    screen.expect("[paste 1: 1 lines]")
    screen.press("Enter")
    screen.expect("one\n")
    assert said(screen.server.requests[0]) == ["why? error in @shop.py and @../secret.txt"]
    for reply, text in (("no", "two"), ("yes", "three")):
        screen.enter("read @../secret.txt", "attach: yes or no >")
        screen.enter(reply, f"{text}\n")
    refused, attached = (str(said(request)[-1]) for request in screen.server.requests[1:])
    assert "outside = 2" not in refused
    assert "outside = 2" in attached


def test_the_questions_of_a_turn_are_numbered_and_mention_the_waiting_calls(chat, project):
    other = ("bash", {"command": "echo other >> ledger"})
    screen = chat([LEDGER, other], [LEDGER], "done", columns=80, rows=24)
    screen.enter("go", "│ echo ran >> ledger")
    screen.expect("─ call 1 of 2: none starts yet ─")
    answer(screen, "yes", "\n> yes\n")
    screen.expect("─ call 2 of 2: none starts yet ─")
    assert not (project / "ledger").exists()
    answer(screen, "no", "│ echo ran >> ledger", 2)
    assert lines_of(project / "ledger") == ["ran"]
    assert screen.screen().count(": none starts") == 2, "not for the only call of a turn"
    answer(screen, "no", "done")


def test_the_end_of_a_background_command_is_reported(chat, project):
    os.mkfifo(project / "pipe")
    command = {"command": "cat pipe", "background": True}
    screen = chat([("bash", command)], "done", options=["--yes"])
    screen.enter("go", "done")
    id = re.search(r"background command (\w+): cat pipe", screen.expect("background command "))[1]
    assert "has ended" not in screen.screen()
    (project / "pipe").write_text("")
    told = f"Background command {id} has ended: cat pipe"
    shown = screen.expect(f"\n({told})\n")
    assert f"background command {id}: cat" not in shown.partition("has ended")[2]
    screen.enter("and now?", "The script is over.")
    assert said(screen.server.requests[-1]) == ["go", told, "and now?"], "the model is told, too"


def test_only_the_lines_of_a_file_are_lines_of_its_diff_and_of_its_result(chat, project):
    hidden = "# fine\x85run()\x1cnow()\r\nsecond\n"
    shown = r"# fine\x85run()\x1cnow()"
    show_it = ("bash", {"command": "cat a.py"})
    screen = chat([("write", {"path": "a.py", "content": hidden})], [show_it], "done")
    screen.enter("go", f"    1 +{shown} ")
    assert "    2 +second " in screen.screen()
    answer(screen, "y", "cat a.py")
    answer(screen, "y", f"\n  {shown}")


def test_long_lines_of_a_diff_are_indented_after_the_line_number_even_with_tabs(chat, project):
    old, new = "x" * 100, "\t" + "y" * 100
    (project / "a.py").write_text(f"{old}\n")
    edit = ("edit", {"path": "a.py", "old_text": old, "new_text": new})
    screen = chat([edit], "done", columns=60)
    screen.enter("go", QUESTION)
    screen.expect(f"│       -{'x' * 49} │\n│        {'x' * 49} │\n")
    wrapped = f"    1 +    {'y' * 45} │\n│        {'y' * 49} │\n│        {'y' * 6} "
    screen.expect(wrapped)
    answer(screen, "no", "done")


def test_exit_ends_the_chat_even_during_an_answer(chat):
    screen = chat(["half of it", threading.Event()])
    screen.enter("go", "half of it")
    screen.enter("/exit")
    assert screen.status() == 0
    assert "next: /exit" not in screen.screen()


def test_a_call_that_is_still_streamed_is_shown_without_its_json(chat):
    hold = threading.Event()
    screen = chat([WRITE, hold], "done", options=["--yes"])
    screen.enter("go", "writing a call of write: ")
    assert '"content"' not in screen.screen()
    hold.set()
    screen.expect("done")


def test_a_path_from_the_editor_requires_confirmation_and_a_typed_path_does_not(
    chat, project, tmp_path
):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho " and @b.txt" >> "$1"\n')
    editor.chmod(0o755)
    for name in ("a.txt", "b.txt"):
        (project / name).write_text(f"text of {name}")
    screen = chat("done", VISUAL=str(editor))
    screen.type("read @a.txt")
    screen.press("C-x", "C-e")
    screen.expect("and @b.txt")
    screen.press("Enter")
    screen.expect("│ " + str(project / "b.txt"))
    screen.expect("attach: yes or no >")
    screen.enter("no", "done")
    [content] = said(screen.server.requests[0])
    assert content.endswith("\na.txt:\ntext of a.txt")
    assert "text of b.txt" not in content


def test_a_list_of_sessions_shows_the_prompt_without_its_files(chat, project):
    (project / "a.txt").write_text("a secret word")
    screen = chat("one", "two")
    screen.enter("read @a.txt", "one")
    screen.enter("/new", "0 messages", 2)
    shown = screen.enter("/resume", "Other sessions:")
    assert re.search(r":\d\d  read @a.txt\n", shown)


def test_an_unmarked_paste_is_one_message_and_attaches_no_file_without_confirmation(chat, project):
    (project / "a.txt").write_text("text of a")
    screen = chat("done")
    text = "one @a.txt\n" + "".join(f"line {number}\n" for number in range(200)) + "the end"
    screen.paste(text, marked=False)
    screen.expect("> one @a.txt\n[paste 1: 201 lines]")
    assert not screen.server.requests
    screen.press("Enter")
    screen.expect("attach: yes or no >")
    screen.enter("no", "done")
    assert said(screen.server.requests[0]) == [text]


def test_an_unmarked_paste_to_a_screen_reader_is_one_message(chat):
    screen = chat("one", "done", term="dumb")
    say_hello(screen)
    text = "\n".join(f"line {number}" for number in range(200))
    text += f"\n{'long ' * 5_000}\nthe end"
    screen.paste(text, marked=False)
    screen.expect("(Press Enter to send: line 0)")
    assert len(screen.server.requests) == 1
    screen.press("Enter")
    screen.expect("done")
    assert said(screen.server.requests[1]) == ["hello", text]


def test_an_unmarked_paste_of_thousands_of_indented_lines_is_folded_and_complete(chat):
    screen = chat("done")
    text = (
        "def f():\n" + "".join(f"    if {number}:\n\treturn\n" for number in range(2_000)) + "end"
    )
    screen.paste(text, marked=False)
    screen.expect("> def f():\n[paste 1: 4001 lines]")
    screen.enter(" of it", "done")
    assert said(screen.server.requests[0]) == [f"{text} of it"]


def test_a_short_unmarked_paste_retains_its_indentation(chat):
    screen = chat("done")
    text = "  an indented first line\n    another line\nthe end"
    screen.paste(text, marked=False)
    screen.enter(" of it", "done")
    assert said(screen.server.requests[0]) == [f"{text.strip()} of it"]


def test_an_unmarked_paste_does_not_leave_the_chat_before_enter(chat):
    screen = chat()
    screen.paste("exit\nor not\n", marked=False)
    assert "[left:" not in screen.expect("(Press Enter to send: exit)")


def test_short_lines_that_arrive_together_are_separate_messages(chat):
    screen = chat("one", "two")
    screen.paste("first\nsecond\n", marked=False)  # all keys arrive simultaneously
    screen.expect("two")
    assert said(screen.server.requests[-1]) == ["first", "second"]


@pytest.mark.parametrize("term", ["screen", "dumb"])
def test_a_short_unmarked_paste_runs_and_approves_nothing_before_enter(chat, project, term):
    screen = chat("one", [LEDGER], "done", term=term)
    say_hello(screen)
    screen.paste("!touch ran\n", marked=False)
    screen.expect("(Press Enter to send: !touch ran)")
    assert not (project / "ran").exists()
    screen.press("Enter")
    screen.expect("[No output.]")
    expect_prompt(screen)
    assert (project / "ran").exists()
    screen.enter("go", QUESTION)
    screen.paste("y\n", marked=False)
    screen.expect("(Press Enter to send: y)")
    assert not (project / "ledger").exists()
    screen.press("Enter")
    screen.expect("done")
    assert lines_of(project / "ledger") == ["ran"]


@pytest.mark.parametrize("name", ["undo", "exit"])
def test_text_after_a_command_without_argument_is_an_error(chat, name):
    screen = chat("answer")
    screen.enter("go", "answer\n\ncontext")
    shown = screen.enter(f"/{name} the words", f"(/{name} has no argument.")
    assert f"Write /{name} without further text.)" in shown
    screen.enter("go on", "The script is over.")
    assert said(screen.server.requests[-1]) == ["go", "go on"]


@pytest.mark.parametrize("widths", [(100, 80, 60), (70, 90, 60)])
def test_quick_resizes_during_an_answer_lose_no_row(chat, widths):
    hold = threading.Event()
    words = [f"word{number}" for number in range(60)]
    turns = ["- item\n" * 60, [" ".join(words), hold, " end"]]
    screen = chat(*turns, columns=120, rows=40)
    screen.enter("first", "item\n\ncontext")  # the prompt is at the bottom of the screen
    screen.enter("go", "word59")
    draft = "some words of a draft " * 4
    screen.type(draft)
    screen.expect(f"> {draft.strip()}")
    for width in widths:
        screen.do("resize-window", "-x", str(width))
    screen.expect("word25\nword26")  # drawn for 60 columns
    hold.set()

    def is_complete(shown):
        printed, _, answer = shown.partition("\n\n> go\n\n")
        answer = answer[answer.rfind("word0 ") :]
        expected = rf"{' '.join(words)} end context \S+ of 128,000 some-model > {draft.strip()}"
        return printed.count("• item") == 60 and re.fullmatch(expected, " ".join(answer.split()))

    screen.wait(is_complete, "complete answer")
