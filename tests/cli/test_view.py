"""The page to look into a run: what is in it, and what a person at a browser finds there."""

import base64
import json
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    ImagePart,
    ScriptedModel,
    ServerError,
    Session,
    Summary,
    TextPart,
    ToolCall,
    ToolError,
    ToolMessage,
    ToolStart,
    Usage,
    UserMessage,
    call,
    dump_record,
    tool,
)
from agentloop.cli.main import main
from agentloop.cli.view import data_of, page_of
from agentloop.common.store import read_log
from agentloop.messages import Ask, Decision, RunEnd, RunStart, SideRequest
from agentloop.mixins.compaction import SUMMARY_PROMPT
from tests.cli.browser import chromium

ROOT = Path(__file__).parent.parent.parent
EVIL = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<!--<script>",
    "]]><svg/onload=window.pwned=1>",
    "&lt;b&gt; \u2028 \u2029 \x1b[31m \u202e {{data}} {{title}} $& $`",
    "<style>*{display:none}</style><base href='http://127.0.0.1:9/'><meta http-equiv=refresh>",
)


class Kept(Session, Agent):
    system_prompt = "You read books."


@tool(ephemeral=1)
async def page(n: int) -> str:
    """Look at a page."""
    if n % 7 == 6:
        raise ToolError("1 page is missing")
    return f"page {n} of the book\n" + "word " * 300


def book(folder):
    """The log of a session with all that a page can show, and the texts of each request."""
    requests = []

    def answer(messages, tools):
        texts = [message.text for message in messages]
        size, n = sum(map(len, texts)) // 4, len(requests)
        usage = Usage(size, 40 + n, int(size * 0.8))
        if texts[-1] == SUMMARY_PROMPT:
            return AssistantMessage("The pages 1 to 9 were read.", usage=usage)
        requests.append(texts)
        known = {"usage": usage, "model": "a-model"}
        if n > 22:
            return AssistantMessage("The book has no end.", thinking="How odd.", **known)
        calls = [ToolCall(f"c{n}", "page", f'{{"n": {n}}}')]
        return AssistantMessage("Next page." if n % 2 else "", calls, **known)

    known = {"session": "book", "session_dir": folder, "session_fsync": False}
    compaction = CompactionConfig(context_window=3000, keep_turns=1)
    agent = Kept(llm=ScriptedModel(answer), tools=[page], compaction=compaction, **known)
    agent.run_sync("Read the book.")
    agent.run_sync("And now?")
    agent.close()
    return read_log(folder / "book.jsonl"), requests


def test_what_a_turn_saw_is_what_the_model_was_sent(tmp_path):
    log, requests = book(tmp_path)
    data, found, seen = data_of(log), [], []
    for row in (row for row in data["rows"] if "then" in row):
        seen = [*seen[: row["same"]], *row["then"]]
        if row["type"] == "assistant":
            found.append([data["messages"][at].get("content", "") for at in seen])
    assert found == [[text for text in sent if text != "You read books."] for sent in requests]
    assert len(found) == 25
    for told in ("[An older result", "The pages 1 to 9 were read."):
        assert any(told in text for texts in found for text in texts)


def test_the_data_of_a_long_session_grows_with_its_turns():
    def places(turns):
        """How many places of messages all rows together name."""
        log = [RunStart(), UserMessage("go")]
        for n in range(turns):
            call, text = ToolCall(f"c{n}", "page"), f"page {n} " + "word " * 200
            log += [
                AssistantMessage("", [call]),
                ToolStart(call.id),
                call.answer(text, ephemeral=1),
            ]
        return sum(len(row.get("then", ())) for row in data_of(log, every=True)["rows"])

    assert places(800) < 5 * places(200)


def test_cost_comes_from_a_price_function():
    reply = AssistantMessage("hi", usage=Usage(1000, 10), model="m")
    log = [RunStart(at=1.0), UserMessage("go"), reply, SideRequest(Usage(5, 5), model=None)]
    *_, turn, side, _ = data_of(log, lambda model, usage: usage.input_tokens / 1000)["rows"]
    assert (turn["cost"], side["cost"]) == (1.0, None)


def test_text_cannot_leave_the_data():
    log = [RunStart(at=1.0), *(UserMessage(text) for text in EVIL)]
    written = page_of(EVIL[0] + "{{data}}", log).decode()
    [data] = re.findall('(?s)<script type="application/json" id="data">(.*?)</script>', written)
    assert "<" not in data
    assert [message["content"] for message in json.loads(data)["messages"]] == list(EVIL)
    assert written.count("<script") == 2


def test_nothing_in_it_comes_from_elsewhere_and_nothing_is_markup():
    text = (ROOT / "agentloop" / "cli" / "view.html").read_text(encoding="utf-8")
    bad = r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\("
    assert not re.search(bad, text)
    assert text.count("\n") <= 520
    assert "default-src 'none'" in text


def test_the_command_writes_a_page_for_its_owner(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    book(tmp_path / ".agentloop" / "sessions")
    page = tmp_path / "out.html"
    page.write_text("old")
    page.chmod(0o644)
    assert main(["view", ".agentloop/sessions/book.jsonl", "-o", "out.html"]) == 0
    assert capsys.readouterr().out.startswith("out.html: ")
    assert sys.platform == "win32" or stat.S_IMODE(page.stat().st_mode) == 0o600
    assert main(["view", "book"]) == 0
    assert page.read_bytes() == (tmp_path / "book.html").read_bytes()


def test_live_writes_the_page_again_when_the_session_has_grown(tmp_path, monkeypatch, capsys):
    session, page = tmp_path / "s.jsonl", tmp_path / "s.html"
    lines = [b'{"type":"session","schema":2}', dump_record(UserMessage("first")), b""]
    session.write_bytes(b"\n".join(lines))
    seconds = []

    def pass_a_second(_):
        seconds.append(page.read_text("utf-8"))
        if len(seconds) == 2:
            with session.open("ab") as file:
                file.write(dump_record(UserMessage("needle")) + b"\n")
        if len(seconds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", pass_a_second)
    assert main(["view", str(session), "--live", "-o", str(page)]) == 130
    assert ["needle" in text for text in seconds] == [False, False, True]
    assert capsys.readouterr().out.count("s.html: ") == 2


# ---- in a browser


@pytest.fixture(scope="module")
def one_browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(one_browser, tmp_path):
    """Opens the page of a log; at the end, it must not have complained."""

    def show(log, title="book.jsonl", **size):
        path = tmp_path / "run.html"
        path.write_bytes(page_of(title, log))
        one_browser.open(path, **size)
        one_browser.wait("return document.querySelector('.row, article p')")
        return path

    one_browser.show = show
    yield one_browser
    assert one_browser.problems() == []


FIND = "const r = document.querySelector('mark.now').getBoundingClientRect(); return r.top"


@pytest.mark.slow
class TestInABrowser:
    def test_what_a_turn_did_stands_first_and_what_it_saw_below_it(self, browser, tmp_path):
        browser.show(book(tmp_path)[0])
        browser.sees("#figures", "Turn 1 of 25")
        browser.sees("#saw details[open] pre", "Read the book.")
        browser.click(".row", "Next page.")
        browser.sees("#figures", "Turn 2 of 25", "a-model")
        assert browser.run("return location.hash") == "#turn=2"
        assert re.match("WHAT IT DID\nWHAT IT SAW", browser.text("article h2").upper())
        assert browser.text("#did") == "Next page."
        browser.sees(".call", "✓ ok")
        browser.sees(".card pre", "page 1 of the book")
        heads = browser.text("#saw summary").split("\n")
        assert heads[:2] == ["result of page n=0", "page 0 of the book"]
        assert heads[-1] == "2 earlier messages"
        browser.click("#saw summary", "earlier")
        browser.sees("#saw summary", "reply", "→ page n=0")
        browser.click("summary", "system prompt")
        browser.click("summary", "1 tool")
        browser.wait("return document.body.innerText.includes('Look at a page.')")
        browser.sees("article", "You read books.")
        browser.press("e")
        browser.sees(".call", "error")
        browser.sees(".card pre", "1 page is missing")

    def test_on_a_phone_one_goes_from_turn_to_turn_with_buttons(self, browser, tmp_path):
        browser.show(book(tmp_path)[0], width=500)
        assert not browser.text("#pager")
        browser.click(".row", "Next page.")
        assert not browser.text("nav")
        for button in ("#next", "#next", "#previous"):
            browser.click(button)
        browser.sees("#figures", "Turn 3 of 25")
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        browser.click("#turns")
        browser.sees("nav", "Next page.")

    def test_what_was_pruned_or_is_long_is_one_click_away(self, browser, tmp_path):
        log, _ = book(tmp_path)
        log.insert(-2, UserMessage("long " + "x" * 5000 + " end"))
        browser.show(log)
        browser.press(*"j" * 5)
        browser.click("#saw summary", "earlier")
        browser.click("#saw summary", "pruned")
        browser.sees("#saw pre", "[An older result")
        browser.click("#saw summary", "The result itself")
        browser.sees("#saw pre", "of the book")
        browser.press(*"j" * 19)
        assert "xxx end" not in browser.text("#saw")
        browser.click("#saw .link", "Show all of it: 5,009 characters")
        browser.sees("#saw", "xxx end")

    def test_a_search_leaves_the_turns_that_have_it_and_scrolls_to_each_find(
        self, browser, tmp_path
    ):
        log, _ = book(tmp_path)
        log.insert(3, UserMessage("line\n" * 200 + "needle" + "\nline" * 200 + " needle"))
        browser.show(log)
        browser.press("/", *"PAGE 3 of", "Enter")
        browser.sees("#figures", "Turn 4 of")
        assert (browser.text("#found"), browser.text("mark.now")) == ("1 turn", "page 3 of")
        assert len(browser.find(".row:not(.gone)")) == 1
        browser.press("Escape")
        assert len(browser.find(".row:not(.gone)")) == 25
        browser.press("/", *"needle", "Enter")
        browser.wait("return document.getElementById('found').textContent === '1 turn'")
        shown = browser.run("return document.querySelector('#right').scrollTop")
        assert 0 < browser.run(FIND) < 900
        browser.press("Enter")
        assert browser.run("return document.querySelector('#right').scrollTop") > shown
        assert 0 < browser.run(FIND) < 900
        browser.press("Escape", "/", *"((no such", "Enter")
        assert browser.text("#found") == "0 turns"

    def test_what_models_and_tools_say_is_text(self, browser):
        log = [RunStart(at=1, system_prompt=EVIL[0], tools=[[EVIL[1], EVIL[2], {}]])]
        for n, evil in enumerate(EVIL):
            name, known = evil[:60], {"thinking": evil, "model": evil, "stop_reason": evil}
            calls = ToolCall(f"c{n}", name, json.dumps({evil: evil})), ToolCall(f"d{n}", name, evil)
            log += [
                UserMessage(evil),
                AssistantMessage(evil, calls, **known),
                ToolMessage(f"c{n}", name, evil),
                ToolMessage(f"d{n}", name, [TextPart(evil), ImagePart(url=f"javascript:{evil}")]),
                Summary(evil, 1, model=evil),
            ]
        browser.show([*log, AssistantMessage(EVIL[0]), RunEnd(EVIL[1])], title=EVIL[1])
        for _ in range(len(EVIL) + 1):
            for kind in ("summary", ".link", "details:not([open]) > summary", ".link"):
                browser.run(f"document.querySelectorAll('{kind}').forEach((b) => b.click())")
            browser.press("j")
        browser.press("/", *"<script>", "Enter")
        browser.sees("mark", "<script>")
        assert browser.run("return window.pwned") is None
        assert browser.run("return document.scripts.length") == 2
        assert browser.run("return document.querySelectorAll('img, style, base, meta').length") == 5
        assert "\\u202e" in browser.run("return document.body.textContent")

    @pytest.mark.parametrize(
        ("tag", "what"),
        [("script", "text: 'window.pwned = 1'"), ("img", "src: 'http://127.0.0.1:9/'")],
    )
    def test_the_page_may_load_and_run_nothing_else(self, browser, tag, what):
        browser.show([])
        element = f"Object.assign(document.createElement('{tag}'), {{{what}}})"
        browser.run(f"document.body.append({element})")
        assert browser.run("return window.pwned") is None
        [problem] = browser.problems()
        assert "Content Security Policy" in problem

    def test_two_thousand_steps_of_twenty_megabytes_do_not_freeze_it(self, browser):
        log = [RunStart(at=1.0), UserMessage("go")]
        for n in range(2000):
            calls = [ToolCall(f"c{n}", "page", f'{{"n": {n}}}')]
            result = f"needle{n} " + "lorem ipsum\n" * 850
            log += [
                AssistantMessage(f"Step {n}.", calls, usage=Usage(1000 + n * 50, 20, n * 45)),
                ToolMessage(f"c{n}", "page", result, ephemeral=2),
            ]
        path = browser.show([*log, AssistantMessage("The end."), RunEnd("completed", at=2.0)])
        assert path.stat().st_size > 20_000_000
        assert len(browser.find("article *")) < 4000
        browser.press("/", *"needle1234", "Enter")
        browser.wait("return document.getElementById('found').textContent === '1 turn'")
        browser.sees("#figures", "Turn 1,235 of")

    def test_a_request_that_failed_is_shown_with_its_prompt_its_error_and_what_was_sent(
        self, browser
    ):
        agent = Agent(
            llm=ScriptedModel(call("page", n=1), ServerError("503: <busy>")), tools=[page]
        )
        with pytest.raises(ServerError):
            agent.run_sync("Read the book.")
        browser.show(agent.log)
        browser.sees(".run", "Read the book.")
        browser.press("e")
        browser.sees("#figures", "Turn 2 of 2", "the request failed")
        browser.sees("#did", "ServerError", "503: <busy>")
        browser.sees("#saw", "page 1 of the book")
        browser.sees(".row[aria-current]", "ServerError", "the request failed")

    def test_the_list_can_be_the_turns_with_errors_or_with_a_tool(self, browser, tmp_path):
        log, _ = book(tmp_path)
        look = ToolCall("look", "look")
        browser.show([*log, AssistantMessage("", [look]), look.answer("seen")])
        assert browser.text("#filter").split("\n") == [
            "All turns",
            "Errors (3)",
            "page (23)",
            "look (1)",
        ]
        for choice, turns in (("Errors", 3), ("look", 1), ("page", 23), ("All", 26)):
            browser.press("j")
            browser.run(
                f"const box = document.querySelector('#filter');"
                f"box.value = [...box.options].find((o) => o.text.startsWith('{choice}')).value;"
                "box.dispatchEvent(new Event('change'))"
            )
            assert len(browser.find(".row:not(.gone)")) == turns
            assert browser.run("return !!document.querySelector('.row[aria-current]:not(.gone)')")

    def test_who_was_asked_and_how_long_each_call_took_stand_with_the_call(self, browser):
        first, second = ToolCall("a", "pay", '{"amount": 6}'), ToolCall("b", "look")
        log = [RunStart(at=1.0), UserMessage("go"), SideRequest(Usage(9, 1), purpose="compaction")]
        log += [AssistantMessage("", [first, second], seconds=2.0)]
        log += [Ask("a", "it costs money", at=3.0), Decision("a", True, "fine", by="Ann", at=9.0)]
        log += [ToolStart("b", at=3.0), ToolStart("a", at=9.0)]
        log += [
            replace(second.answer("seen"), seconds=1.0),
            replace(first.answer("paid"), seconds=2),
        ]
        browser.show(log)
        browser.sees(".card", "ask", "it costs money", "decision", "by: Ann", "fine")
        browser.sees("article", "side request", "compaction", "9 tokens in, 1 out")
        assert browser.text(".times").split() == [
            "model",
            "2.00",
            "s",
            "pay",
            "2.00",
            "s",
            "look",
            "1.00",
            "s",
        ]
        tracks = "return [...document.querySelectorAll('.track span')].map((e) => e.offsetLeft)"
        model, pay, looked = browser.run(tracks)
        assert model < looked < pay

    def test_an_answer_is_drawn_as_markdown_and_a_search_finds_its_text(self, browser):
        answer = (
            "# Eggs\n\nThere are **12** in `pantry`:\n\n- six\n- <b>six</b>\n\n```py\n**x**\n```"
        )
        browser.show([UserMessage("go"), AssistantMessage(answer)])
        for css, text in (("h3", "Eggs"), ("b", "12"), ("code", "pantry"), ("pre", "**x**")):
            assert browser.text(f".said {css}") == text
        assert browser.text(".said li") == "six\n<b>six</b>"
        browser.press("/", *"**12", "Enter")
        browser.sees("mark", "**12")

    def test_what_is_open_is_printed_whole(self, browser):
        browser.show([UserMessage("go"), AssistantMessage("line\n\n" * 300)])
        pdf = base64.b64decode(browser.ask("POST", "/print"))
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 3

    def test_what_has_no_answer_yet_or_was_cut_off_is_named(self, browser):
        log = [RunStart(at=1.0), UserMessage("go")]
        for early in ([], log, [*log, RunEnd("cancelled", at=1.0)]):
            browser.show(early)
            browser.sees("article", "no reply in this session yet")
        log += [AssistantMessage(tool_calls=[ToolCall("a", "pay")]), ToolStart("a", at=1.0)]
        log += [UserMessage("and?"), AssistantMessage("Noth", stop_reason="interrupted")]
        log += [UserMessage("well"), AssistantMessage(tool_calls=[ToolCall("b", "pay")])]
        browser.show(log)
        browser.sees(".card pre", "Interrupted: this call had started")
        browser.sees("article", "does not say what the system prompt and the tools were")
        browser.press("j")
        browser.sees("#saw summary", "result of pay")
        browser.sees("#figures", "cut off: interrupted")
        browser.press("j")
        browser.sees(".call", "no result yet")
