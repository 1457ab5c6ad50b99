"""The page to look into a run: what is in it, and what a person at a browser finds there."""

import json
import re
import stat
import sys
from pathlib import Path

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Ephemeral,
    ImagePart,
    Inbox,
    ScriptedModel,
    Session,
    Summary,
    TextPart,
    ToolCall,
    ToolError,
    ToolMessage,
    ToolStart,
    Usage,
    UserMessage,
    dump_record,
    tool,
)
from agentloop.cli.main import main
from agentloop.cli.view import contexts, data_of, page_of
from agentloop.messages import RunEnd, RunStart, SideRequest
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.offload import Offload
from agentloop.models.replay import RecordingModel
from agentloop.models.scripted import call
from agentloop.store import read_log
from tests.cli.browser import Browser
from tests.cli.warm import run

ROOT = Path(__file__).parent.parent.parent
EVIL = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<!--<script>",
    "]]><svg/onload=window.pwned=1>",
    "&lt;b&gt; \u2028 \u2029 \x1b[31m \u202e {{data}} {{title}} $& $`",
    "<style>*{display:none}</style><base href='http://127.0.0.1:9/'><meta http-equiv=refresh>",
)


class Kept(Inbox, Session, Offload, Agent):
    system_prompt = "You read books."


@tool(ephemeral=1)
async def page(n: int) -> str:
    """Look at a page."""
    return f"page {n} of the book\n" + "word " * 300


@tool
async def listing() -> str:
    """List."""
    return "\n".join(f"line {i} of a long listing" for i in range(1000))


@tool
async def check(path: str) -> str:
    """Check."""
    raise ToolError("1 test failed: test_total")


def book(folder, turns=24, requests=None):
    """The log of a session with all that a page can show.

    requests: gets the texts of each request, but for summaries.
    """
    replies = iter(range(turns))

    def answer(messages, tools):
        if messages[-1].text == SUMMARY_PROMPT:
            return AssistantMessage("The pages 1 to 9 were read.", usage=Usage(9000, 20, 8000))
        if requests is not None:
            requests.append([message.text for message in messages])
        n = next(replies, turns)
        size = sum(len(m.text) for m in messages) // 4
        known = {"usage": Usage(size, 40 + n, int(size * 0.8)), "model": "a-model"}
        if n >= turns - 1:
            return AssistantMessage("The book has no end.", thinking="How odd.", **known)
        if n % 7 == 6:
            calls = [ToolCall(f"c{n}", "check", '{"path": "tests/test_prices.py"}')]
        elif n % 8 == 7:
            calls = [ToolCall(f"c{n}", "listing"), ToolCall(f"d{n}", "page", f'{{"n": {n}}}')]
        else:
            calls = [ToolCall(f"c{n}", "page", f'{{"n": {n}}}')]
        return AssistantMessage("Next page." if n % 2 else "", calls, **known)

    agent = Kept(
        llm=ScriptedModel(answer),
        tools=[page, listing, check],
        session="book",
        session_dir=folder,
        session_fsync=False,
        offload_dir=folder / "offloaded",
        compaction=CompactionConfig(context_window=4000, keep_turns=1),
    )
    agent.run_sync("Read the book.")
    agent.run_sync("And now?")
    agent.close()
    return read_log(folder / "book.jsonl")


# ---- what is in it


async def test_a_context_is_what_the_model_was_sent():
    llm = ScriptedModel(*(call("page", n=n) for n in range(40)), "end")
    agent = Ephemeral(llm=llm, tools=[page], max_iterations=50)
    await agent.run("go")
    found = [messages for _, messages in contexts(agent.log)]
    assert found == [list(request.messages) for request in llm.requests]
    assert sum(m.text.startswith("[An older") for m in found[-1]) > 20


def test_cost_comes_from_a_price_function():
    reply = AssistantMessage("hi", usage=Usage(1000, 10), model="m")
    log = [RunStart(at=1.0), UserMessage("go"), reply, SideRequest(Usage(5, 5), model=None)]
    _, turn, side = data_of(log, lambda model, usage: usage.input_tokens / 1000)["rows"]
    assert (turn["cost"], side["cost"]) == (1.0, None)


def test_text_cannot_leave_the_data():
    log = [RunStart(at=1.0), *(UserMessage(text) for text in EVIL)]
    written = page_of(EVIL[0] + "{{data}}", log).decode()
    [data] = re.findall(
        '<script type="application/json" id="data">(.*?)</script>', written, re.DOTALL
    )
    assert "<" not in data
    texts = [message["content"] for message in json.loads(data)["messages"]]
    assert texts == list(EVIL)
    assert written.count("<script") == 2


def test_nothing_in_it_comes_from_elsewhere_and_nothing_is_markup():
    text = (ROOT / "agentloop" / "cli" / "view.html").read_text(encoding="utf-8")
    bad = r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\("
    assert not re.search(bad, text)
    assert text.count("\n") <= 450
    assert "default-src 'none'" in text


# ---- the command


def test_the_command_writes_a_page_for_its_owner(tmp_path):
    book(tmp_path)
    done = run("view", "book.jsonl", "-o", "out.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("out.html: ")
    assert (tmp_path / "out.html").stat().st_mode & 0o777 == 0o600
    assert run("view", str(tmp_path / "book.jsonl"), cwd=tmp_path / "offloaded").returncode == 0
    page = (tmp_path / "offloaded" / "book.html").read_bytes()
    assert page == (tmp_path / "out.html").read_bytes()
    sessions = tmp_path / ".agentloop" / "sessions"
    sessions.mkdir(parents=True)
    (tmp_path / "book.jsonl").rename(sessions / "kept.jsonl")
    done = run("view", "kept", cwd=tmp_path, HOME=str(tmp_path))
    assert (done.returncode, (tmp_path / "kept.html").exists()) == (0, True)


def test_what_is_no_session_is_one_line(tmp_path):
    (tmp_path / "text.jsonl").write_text("hello\n")
    RecordingModel(ScriptedModel(), tmp_path / "r.jsonl")
    (tmp_path / "s.jsonl").write_text('{"type":"session","schema":1}\n')
    for arguments, problem in (
        (["missing.jsonl"], "there is no session missing.jsonl"),
        (["text.jsonl"], "is no session"),
        (["r.jsonl"], "is no session"),
        (["s.jsonl", "-o", "s.jsonl"], "-o names the page, which ends in .html, not s.jsonl"),
        (["s.jsonl", "-o", "no/where.html"], "No such file"),
    ):
        done = run("view", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1


# ---- in a browser


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


def opened(browser, folder, log, title="book.jsonl", **size):
    path = folder / "run.html"
    path.write_bytes(page_of(title, log))
    browser.open(path, **size)
    browser.wait("return document.querySelector('.row, article p')")
    return path


def test_the_context_of_each_turn_is_what_the_model_was_sent(browser, tmp_path):
    requests = []
    log = book(tmp_path, requests=requests)
    opened(browser, tmp_path, log)
    shown = browser.run("return turns.map((_, t) => seenIn(t).map((at) => textOf(messages[at])))")
    assert [[m for m in sent if m != "You read books."] for sent in requests] == shown
    assert len(shown) == 25


@pytest.mark.slow
def test_what_a_turn_did_stands_first_and_what_it_saw_below_it(browser, tmp_path):
    opened(browser, tmp_path, book(tmp_path))
    assert "Turn 1 of 25" in browser.text("#figures")
    assert browser.text("#saw details[open] pre") == "Read the book."
    browser.click(".row", "Next page.")
    assert "Turn 2 of 25" in browser.text("#figures")
    assert "a-model" in browser.text("#figures")
    assert browser.run("return location.hash") == "#turn=2"
    did, saw = browser.text("article h2").upper().split("\n")
    assert did == "WHAT IT DID"
    assert saw.startswith("WHAT IT SAW")
    assert browser.text("#did") == "Next page."
    assert "✓ ok" in browser.text(".call")
    assert "page 1 of the book" in browser.text(".card pre")
    heads = browser.text("#saw summary").split("\n")
    assert heads[:2] == ["result of page n=0", "page 0 of the book"]
    assert heads[-1] == "2 earlier messages"
    browser.click("#saw summary", "earlier")
    assert "reply" in browser.text("#saw summary")
    assert "→ page n=0" in browser.text("#saw summary")
    browser.click("summary", "system prompt")
    browser.wait("return document.querySelector('article').innerText.includes('You read books.')")
    browser.click("summary", "4 tools")
    browser.wait("return document.body.innerText.includes('Look at a page.')")
    browser.press("e")
    assert "error" in browser.text(".call")
    assert "1 test failed: test_total" in browser.text(".card pre")


@pytest.mark.slow
def test_what_was_pruned_or_is_long_is_one_click_away(browser, tmp_path):
    log = book(tmp_path)
    log.insert(3, UserMessage("long " + "x" * 5000 + " end"))
    opened(browser, tmp_path, log)
    browser.press(*"j" * 14)  # behind the summary
    browser.click("#saw summary", "earlier")
    browser.click("#saw summary", "pruned")
    assert "[An older result" in browser.text("#saw pre")
    browser.click("#saw summary", "The result itself")
    assert "of the book" in browser.text("#saw pre")
    browser.press(*"k" * 13)
    assert "xxx end" not in browser.text("#saw")
    browser.click("#saw .link", "Show all of it: 5,009 characters")
    assert "xxx end" in browser.text("#saw")
    browser.press("G")
    assert browser.problems() == []


@pytest.mark.slow
def test_searching_leaves_the_turns_that_have_it_and_scrolls_to_each_find(browser, tmp_path):
    log = book(tmp_path)
    log.insert(3, UserMessage("line\n" * 200 + "needle" + "\nline" * 200 + " needle"))
    opened(browser, tmp_path, log)
    browser.press("/", *"PAGE 3 of", "Enter")
    assert browser.text("#found") == "1 turn"
    assert "Turn 4 of" in browser.text("#figures")
    assert browser.text("mark.now") == "page 3 of"
    assert len(browser.find(".row:not(.gone)")) == 1
    browser.press("Escape")
    assert len(browser.find(".row:not(.gone)")) == 25
    browser.press("/", *"needle", "Enter")
    browser.wait("return document.getElementById('found').textContent === '1 turn'")
    where = "const r = document.querySelector('mark.now').getBoundingClientRect(); return r.top"
    shown = browser.run("return document.querySelector('#right').scrollTop")
    assert 0 < browser.run(where) < 900
    browser.press("Enter")
    assert browser.run("return document.querySelector('#right').scrollTop") > shown
    assert 0 < browser.run(where) < 900
    browser.press("Escape", "/", *"((no such", "Enter")
    assert browser.text("#found") == "0 turns"
    assert browser.problems() == []


@pytest.mark.slow
def test_on_a_phone_one_goes_from_turn_to_turn_with_buttons(browser, tmp_path):
    opened(browser, tmp_path, book(tmp_path), width=500)
    assert not browser.text("#pager")
    browser.click(".row", "Next page.")
    assert "Turn 2 of 25" in browser.text("#figures")
    assert not browser.text("nav")
    browser.click("#next")
    browser.click("#next")
    browser.click("#previous")
    assert "Turn 3 of 25" in browser.text("#figures")
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    browser.click("#turns")
    assert "Next page." in browser.text("nav")


@pytest.mark.slow
def test_what_models_and_tools_say_is_text(browser, tmp_path):
    log = [RunStart(at=1.0, extra={"system_prompt": EVIL[0], "tools": [[EVIL[1], EVIL[2], {}]]})]
    for n, evil in enumerate(EVIL):
        name = evil[:60]
        log += [
            UserMessage(evil),
            AssistantMessage(
                evil,
                [ToolCall(f"c{n}", name, json.dumps({evil: evil})), ToolCall(f"d{n}", name, evil)],
                thinking=evil,
                model=evil,
                stop_reason=evil,
            ),
            ToolMessage(f"c{n}", name, evil),
            ToolMessage(f"d{n}", name, [TextPart(evil), ImagePart(url=f"javascript:{evil}")]),
            Summary(evil, 1, model=evil),
        ]
    log += [AssistantMessage(EVIL[0]), RunEnd(EVIL[1])]
    opened(browser, tmp_path, log, title=EVIL[1])
    for _ in range(len(EVIL) + 1):
        for kind in ("summary", ".link", "details:not([open]) > summary", ".link"):
            browser.run(f"document.querySelectorAll('{kind}').forEach((b) => b.click())")
        browser.press("j")
    browser.press("/", *"<script>", "Enter")
    assert browser.run("return window.pwned") is None
    assert browser.run("return document.scripts.length") == 2
    assert browser.run("return document.querySelectorAll('img, style, base, meta').length") == 5
    assert "<script>" in browser.text("mark")
    assert browser.problems() == []
    assert "\\u202e" in browser.run("return document.body.textContent")


@pytest.mark.slow
def test_the_page_may_load_and_run_nothing_else(browser, tmp_path):
    opened(browser, tmp_path, book(tmp_path))
    for tag, what in (
        ("script", "text: 'window.pwned = 1'"),
        ("img", "src: 'http://127.0.0.1:9/'"),
    ):
        element = f"Object.assign(document.createElement('{tag}'), {{{what}}})"
        browser.run(f"document.body.append({element})")
    assert browser.run("return window.pwned") is None
    problems = browser.problems()
    assert len(problems) == 2
    assert all("Content Security Policy" in problem for problem in problems)


@pytest.mark.slow
def test_two_thousand_steps_of_twenty_megabytes_do_not_freeze_it(browser, tmp_path):
    log = [RunStart(at=1.0), UserMessage("go")]
    for n in range(2000):
        usage = Usage(1000 + n * 50, 20, n * 45)
        reply = AssistantMessage(
            f"Step {n}.", [ToolCall(f"c{n}", "page", f'{{"n": {n}}}')], usage=usage
        )
        result = ToolMessage(f"c{n}", "page", f"needle{n} " + "lorem ipsum\n" * 850, ephemeral=2)
        log += [reply, ToolStart(f"c{n}", at=1.0), result]
    log += [AssistantMessage("The end."), RunEnd("completed", at=2.0)]
    assert sum(len(dump_record(record)) for record in log) > 20_000_000
    path = opened(browser, tmp_path, log)
    assert path.stat().st_size > 20_000_000
    assert len(browser.find("article *")) < 4000
    browser.press("/", *"needle1234", "Enter")
    browser.wait("return document.getElementById('found').textContent === '1 turn'")
    assert "Turn 1,235 of" in browser.text("#figures")
    assert browser.problems() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "log", [[], [RunStart(at=1.0), UserMessage("go")], [RunStart(at=1.0), RunEnd("error", at=1.0)]]
)
def test_a_session_without_an_answer_opens(browser, tmp_path, log):
    opened(browser, tmp_path, log)
    assert "no reply in this session yet" in browser.text("article")
    assert browser.problems() == []


@pytest.mark.slow
def test_calls_without_a_result_and_replies_that_were_cut_off_are_named(browser, tmp_path):
    log = [RunStart(at=1.0), UserMessage("go")]
    log += [AssistantMessage(tool_calls=[ToolCall("a", "pay")]), ToolStart("a", at=1.0)]
    log += [UserMessage("and?"), AssistantMessage("Noth", stop_reason="interrupted")]
    log += [UserMessage("well"), AssistantMessage(tool_calls=[ToolCall("b", "pay")])]
    opened(browser, tmp_path, log)
    assert "Interrupted: this call had started" in browser.text(".card pre")
    assert "does not say what the system prompt and the tools were" in browser.text("article")
    browser.press("j")
    assert "result of pay" in browser.text("#saw summary")
    assert "cut off: interrupted" in browser.text("#figures")
    browser.press("j")
    assert "no result yet" in browser.text(".call")


@pytest.mark.skipif(sys.platform == "win32", reason="needs modes")
def test_a_page_is_for_the_owner_only_also_where_a_file_was(tmp_path):
    Session(llm=ScriptedModel("ok"), session="s", session_dir=tmp_path).run_sync("go")
    page = tmp_path / "s.html"
    page.write_text("old")
    page.chmod(0o644)
    assert main(["view", str(tmp_path / "s.jsonl"), "-o", str(page)]) == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
