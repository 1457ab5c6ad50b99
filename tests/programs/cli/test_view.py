"""The page that displays a session: its data, and its behaviour in a browser."""

import base64
import json
import re
import stat
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import pytest
from agentloop_chat.coding_agent import CodingAgent
from agentloop_chat.memory import Remembered

from agentloop import (
    Agent,
    AssistantMessage,
    BadResponse,
    CompactionConfig,
    Depends,
    ImagePart,
    Loop,
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
from agentloop.cli.view import data_of, logs_of, page_of
from agentloop.common.nested import InnerCall, InnerResult
from agentloop.common.prices import genai_price
from agentloop.common.review import Ask, Decision
from agentloop.common.store import read_log
from agentloop.common.subagents import SubAgentRecord
from agentloop.content import describe_error
from agentloop.depends import current_agent
from agentloop.messages import Unknown
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.hooks import HookVerdict
from agentloop.toolkits.subagent import as_tool
from agentloop.transcript import RunEnd, RunStart, SideRequest, view
from tests import ROOT

from .browser import axe, chromium

PRICED = "gpt-5-mini"
EVIL = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<!--<script>",
    "]]><svg/onload=window.pwned=1>",
    "&lt;b&gt; \u2028 \u2029 \x1b[31m \u202e {{data}} {{title}} $& $`",
    "<style>*{display:none}</style><base href='http://127.0.0.1:9/'><meta http-equiv=refresh>",
)


class Reader(Session, Agent):
    system_prompt = "You read books."


@tool(ephemeral=1)
async def page(n: int) -> str:
    """Look at a page."""
    if n % 7 == 6:
        raise ToolError("1 page is missing")
    return f"page {n} of the book\n" + "word " * 2_000


def book(folder):
    """Return the log of a session with every kind of record, and the texts of each request."""
    requests = []

    def answer(messages, tools):
        texts = [message.text for message in messages]
        size, n = sum(map(len, texts)) // 4, len(requests)
        cached = int(size * 0.8) if n > 5 else 0
        usage = Usage(size, 40 + n, cached)
        if texts[-1] == SUMMARY_PROMPT:
            return AssistantMessage("The pages 1 to 9 were read.", usage=usage)
        requests.append(texts)
        fields = {"usage": usage, "model": "a-model"}
        if n > 22:
            return AssistantMessage("The book has no end.", thinking="How odd.", **fields)
        calls = [ToolCall(f"c{n}", "page", f'{{"n": {n}}}')]
        return AssistantMessage("Next page." if n % 2 else "", calls, **fields)

    settings = {
        "session": "book",
        "session_dir": folder,
        "session_fsync": False,
        "offer_recall": False,
    }
    compaction = CompactionConfig(context_window=20_000, keep_turns=1)
    agent = Reader(llm=ScriptedModel(answer), tools=[page], compaction=compaction, **settings)
    agent.run_sync("Read the book.")
    agent.run_sync("And now?")
    agent.close()
    return read_log(folder / "book.jsonl"), requests


def test_the_messages_of_a_turn_are_those_sent_to_the_model(tmp_path):
    log, requests = book(tmp_path)
    data, shown, seen = data_of(log), [], []
    for row in (row for row in data["rows"] if "then" in row):
        seen = [*seen[: row["same"]], *row["then"]]
        if row["type"] == "assistant":
            shown.append([data["messages"][at].get("content", "") for at in seen])
    assert shown == [[text for text in sent if text != "You read books."] for sent in requests]
    assert len(shown) == 25
    for expected in ("[Older result", "The pages 1 to 9 were read."):
        assert any(expected in text for texts in shown for text in texts)


def test_the_page_data_grows_linearly_with_the_turns():
    def places(turns):
        """Return the total number of message positions in all rows."""
        log = [RunStart(), UserMessage("go")]
        for n in range(turns):
            call, text = ToolCall(f"c{n}", "page"), f"page {n} " + "word " * 200
            log += [
                AssistantMessage("", [call]),
                ToolStart(call.id),
                call.answer(text, ephemeral=1),
            ]
        return sum(len(row.get("then", ())) for row in data_of(log, every=True)["rows"])

    assert places(400) < 5 * places(100)


def test_the_page_data_includes_the_cost_of_every_request():
    pytest.importorskip("genai_prices")
    used = Usage(1000, 10)
    log = [RunStart(at=1.0), UserMessage("go"), AssistantMessage("hi", usage=used, model=PRICED)]
    *_, turn, side, _ = data_of([*log, SideRequest(usage=Usage(5, 5), model="nobody knows it")])[
        "rows"
    ]
    assert turn["cost"] == genai_price(PRICED, used) > 0
    assert side["cost"] is None


def undone_session(folder):
    """Undo the second of three prompts; return the logs of the session and the sent messages."""
    sent = []

    def answer(messages, tools):
        sent.append([message.text for message in messages if message.text != "You read books."])
        return AssistantMessage(f"Answer {len(sent)}.", usage=Usage(10, 1), model=PRICED)

    agent = Reader(llm=ScriptedModel(answer), session="s", session_dir=folder, session_fsync=False)
    agent.run_sync("Go on.")
    agent.run_sync("Go on.")
    agent.load_history(agent.messages[:2])
    agent.run_sync("Stop here.")
    agent.close()
    return logs_of(folder / "s.jsonl"), sent


def test_a_page_includes_undone_turns(tmp_path):
    logs, sent = undone_session(tmp_path)
    assert len(logs) == 2
    assert logs[-1] == read_log(tmp_path / "s.jsonl")
    data, seen, shown = data_of(*logs), [], []
    for row in (row for row in data["rows"] if "then" in row):
        seen = [*seen[: row["same"]], *row["then"]]
        if row["type"] == "assistant":
            shown.append([data["messages"][at].get("content", "") for at in seen])
    assert shown == [*sent[:2], sent[0], sent[2]]  # the first answer was recorded again


FAILURES = (
    "page 13 is missing",
    "page 20 is missing",  # in a sub-agent
    "page 27 is missing",  # in a sub-agent of a sub-agent
    "the model is on fire",  # in a sub-agent
    "the stream ended before the reply was complete",
)
CUT_OFF = BadResponse(
    "ChatOpenAI('m'): 200: text/event-stream: BadResponse('the stream ended before the reply was "
    """complete'): data: {"choices": [{"delta": {"content": "It is \\"a book"}}]}"""
)


@tool
async def leaf(n: int) -> str:
    """Look at a leaf."""
    if n % 7 == 6:
        raise ToolError(f"page {n} is missing")
    return f"page {n}\n" * 100


def long_session_with_failures():
    """Return the log of a run of 150 turns, five of which contain a failure."""

    def looker(*replies):
        pages = [call("leaf", n=n) for n in range(5)]
        return Agent(llm=ScriptedModel(*pages, *replies, "Fine."), tools=[leaf, *subs])

    subs = []
    subs.append(as_tool(looker(call("leaf", n=27)), "deep", "Looks deeper"))
    subs.append(as_tool(looker(call("deep", prompt="There.")), "ask", "Asks"))
    subs.append(as_tool(looker(call("leaf", n=20)), "find", "Finds"))
    subs.append(as_tool(looker(ServerError("the model is on fire")), "burn", "Burns"))
    failing = {30: call("leaf", n=13), 120: call("burn", prompt="Go.")}
    failing |= {60: call("find", prompt="Go."), 90: call("ask", prompt="Go.")}
    replies = [failing.get(n, call("leaf", n=n % 6)) for n in range(149)]
    agent = Agent(llm=ScriptedModel(*replies, CUT_OFF), tools=[leaf, *subs])
    with pytest.raises(BadResponse):
        agent.run_sync("Read it.")
    return agent.log


def session_with_memory(folder):
    """Return the log of a chat agent in a folder with a memory file, and the memory text."""
    (folder / "AGENTS.md").write_text("Use tabs.")
    settings = {
        "session": "m",
        "session_dir": folder,
        "session_fsync": False,
        "instruction_dir": folder,
    }
    model = ScriptedModel("Hello.")
    with CodingAgent(llm=model, **settings) as agent:
        agent.run_sync("Hi.")
    [memory, _] = model.requests[0].messages
    return agent.log, memory.text


def test_a_chat_records_the_text_of_the_memory_files(tmp_path):
    log, memory = session_with_memory(tmp_path)
    assert "Use tabs." in memory
    assert [mark.content for mark in log if isinstance(mark, Remembered)] == [memory]
    assert [message.text for message in view(log)] == ["Hi.", "Hello."]


def test_text_cannot_escape_from_the_data_element():
    log = [RunStart(at=1.0), *(UserMessage(text) for text in EVIL)]
    written = page_of(EVIL[0] + "{{data}}", log).decode()
    [data] = re.findall('(?s)<script type="application/json" id="data">(.*?)</script>', written)
    assert "<" not in data
    assert [message["content"] for message in json.loads(data)["messages"]] == list(EVIL)
    assert written.count("<script") == 2


def test_the_page_loads_no_external_content_and_inserts_no_markup():
    text = (ROOT / "agentloop" / "cli" / "view.html").read_text(encoding="utf-8")
    bad = r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\("
    assert not re.search(bad, text)
    assert "default-src 'none'" in text


def test_the_command_writes_a_page_that_only_the_owner_may_read(tmp_path, monkeypatch, capsys):
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
    assert not [*tmp_path.glob("*.part")]
    (tmp_path / "new.jsonl").touch()
    assert main(["view", "new.jsonl", "-o", "new.html"]) == 0
    assert (tmp_path / "new.html").is_file()
    assert main(["view", "book", "--beside", "book", "-o", "both.html"]) == 0
    assert b'"beside":{"title":"book.jsonl"' in (tmp_path / "both.html").read_bytes()
    assert main(["view", "book", "--beside", "nobody"]) == 2


def test_live_writes_the_page_again_after_the_session_grows(tmp_path, monkeypatch, capsys):
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
    """Yield a browser that opens the page of a log, and check its console at the end."""

    def show(*logs, title="book.jsonl", beside=None, live=False, **size):
        path = tmp_path / "run.html"
        path.write_bytes(page_of(title, *logs, beside=beside, live=live))
        one_browser.open(path, **size)
        one_browser.wait("return document.querySelector('.row, article p')")
        return path

    one_browser.show = show
    yield one_browser
    assert one_browser.problems() == []


CHOOSE = """
const box = document.querySelector('#filter');
box.value = [...box.options].find((option) => option.text.startsWith('{}')).value;
box.dispatchEvent(new Event('change'));
"""
FIND = "const r = document.querySelector('mark.now').getBoundingClientRect(); return r.top"


@pytest.mark.slow
class TestInABrowser:
    def test_a_record_with_a_type_that_is_not_text_is_shown(self, browser):
        odd = Unknown({"type": 7, "at": 1.0, "what": "from elsewhere"})
        browser.show([RunStart(), UserMessage("Go."), AssistantMessage("Gone."), odd])
        browser.sees("article", "from elsewhere")

    def test_nested_calls_appear_in_the_card_of_the_calling_tool(self, browser):
        outer = ToolCall("1", "order", "{}")
        log = [
            RunStart(),
            UserMessage("Go."),
            AssistantMessage(tool_calls=(outer,)),
            ToolStart("1"),
            InnerCall("1.1", "1", "pay", '{"amount": 5}'),
            Ask("1.1", "It may have side effects."),
            Decision("1.1", True, by="user"),
            ToolStart("1.1"),
            InnerResult("1.1", ToolMessage("1.1", "pay", "paid 5")),
            InnerCall("1.1", "1.1", "pay", "{}"),  # a foreign record: its own parent
            outer.answer("ordered"),
            AssistantMessage("Done."),
        ]
        browser.show(log)
        browser.sees(".card .card", "pay", "paid 5", "allowed by user", "✓ ok")
        browser.sees(".card", "ordered")

    def test_a_turn_shows_its_reply_before_the_messages_of_the_request(self, browser, tmp_path):
        browser.show(book(tmp_path)[0])
        browser.sees("#figures", "Turn 1 of 25")
        browser.sees(".saw details[open] pre", "Read the book.")
        browser.click(".row", "Next page.")
        browser.sees("#figures", "Turn 2 of 25", "a-model")
        assert browser.run("return location.hash") == "#turn=2"
        assert re.match("REPLY AND CALLS\nMODEL INPUT", browser.text("article h2").upper())
        assert browser.text(".did") == "Next page."
        browser.sees(".call", "✓ ok")
        browser.sees(".card pre", "page 1 of the book")
        heads = browser.text(".saw summary").split("\n")
        assert heads[:2] == ["result of page n=0", "page 0 of the book"]
        assert heads[-1] == "2 earlier messages"
        browser.click(".saw summary", "earlier")
        browser.sees(".saw summary", "reply", "→ page n=0")
        browser.click("summary", "system prompt")
        browser.click("summary", "1 tool")
        browser.wait("return document.body.innerText.includes('Look at a page.')")
        browser.sees("article", "You read books.")
        browser.press("e")
        browser.sees(".call", "error")
        browser.sees(".card pre", "1 page is missing")

    def test_buttons_navigate_between_turns_on_a_phone(self, browser, tmp_path):
        browser.show(book(tmp_path)[0], width=500)
        assert not browser.text("#pager")
        browser.sees("nav svg", "25 turns")
        browser.click(".row", "Next page.")
        assert not browser.text("nav")
        for button in ("#next", "#next", "#previous"):
            browser.click(button)
        browser.sees("#figures", "Turn 3 of 25")
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        browser.click("#turns")
        browser.sees("nav", "Next page.")

    def test_two_sessions_are_readable_on_a_phone(self, browser, tmp_path):
        log = book(tmp_path)[0]
        beside = {"title": "other.jsonl"} | data_of(log)
        browser.show(log, beside=beside, width=500)
        width = "return document.querySelector('.row').getBoundingClientRect().width"
        assert browser.run(width) > 200
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        browser.click(".row", "Next page.")
        browser.sees("#figures", "Turn 2 of book.jsonl")

    @pytest.mark.parametrize("width", [1280, 500])
    def test_axe_reports_no_violation_in_any_view(self, browser, tmp_path, width):
        source, log = axe(), [*book(tmp_path)[0], RunEnd("error", "503")]
        log += [UserMessage("and?"), AssistantMessage("> It *ends*.\n\n| a |\n| - |\n| b |")]
        beside = {"title": "other.jsonl"} | data_of(log[:40])
        for other in (None, beside):
            browser.show(log, beside=other, width=width)
            for keys in ("", "e", "d", "dt", "t", *(["/", "B"],)):
                browser.press(*keys)
                assert browser.faults(source) == [], (keys, other is not None)
        browser.show(*undone_session(tmp_path)[0], width=width)
        assert browser.faults(source) == []

    def test_the_turn_selected_with_a_key_is_announced(self, browser, tmp_path):
        browser.show(book(tmp_path)[0])
        status = "return document.querySelector('main [role=status]').textContent"
        browser.press("j")
        assert browser.run(status) == "Turn 2 · Next page."
        browser.press("e")
        assert browser.run(status) == "Turn 7 · page n=6 · 1 error"

    def test_pruned_results_and_long_texts_open_with_a_click(self, browser, tmp_path):
        log, _ = book(tmp_path)
        log.insert(-2, UserMessage("long " + "x" * 5000 + " end"))
        browser.show(log)
        browser.press(*"j" * 5)
        browser.click(".saw summary", "earlier")
        browser.click(".saw summary", "pruned")
        browser.sees(".saw pre", "[Older result")
        browser.click(".saw summary", "The pruned result")
        browser.sees(".saw pre", "of the book")
        browser.press(*"j" * 19)
        assert "xxx end" not in browser.text(".saw")
        browser.click(".saw .link", "Show all of it: 5,009 characters")
        browser.sees(".saw", "xxx end")

    def test_a_search_filters_the_turns_and_scrolls_to_every_match(self, browser, tmp_path):
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

    def test_output_of_models_and_tools_is_inserted_as_text(self, browser):
        log = [RunStart(at=1, system_prompt=EVIL[0], tools=[[EVIL[1], EVIL[2], {}]])]
        for n, evil in enumerate(EVIL):
            name, fields = evil[:60], {"thinking": evil, "model": evil, "stop_reason": evil}
            calls = ToolCall(f"c{n}", name, json.dumps({evil: evil})), ToolCall(f"d{n}", name, evil)
            log += [
                UserMessage(evil),
                AssistantMessage(evil, calls, **fields),
                Remembered(evil),
                HookVerdict(evil, evil, evil),
                Ask(f"c{n}", evil, evil, evil),
                Decision(f"c{n}", True, evil, by=evil),
                ToolMessage(f"c{n}", name, evil),
                ToolMessage(f"d{n}", name, [TextPart(evil), ImagePart(url=f"javascript:{evil}")]),
                Summary(evil, 1, model=evil),
            ]
        log += [AssistantMessage(EVIL[0]), RunEnd("error", EVIL[1])]
        beside = {"title": EVIL[2]} | data_of([*log, UserMessage("one more")])
        browser.show(log, title=EVIL[1], beside=beside)
        for _ in range(len(EVIL) + 1):
            for key in "ddtt":
                browser.press(key)
                browser.run(
                    "document.querySelectorAll('details').forEach((d) => d.firstChild.click())"
                )
            for kind in ("summary", ".link", "details:not([open]) > summary", ".link"):
                browser.run(f"document.querySelectorAll('{kind}').forEach((b) => b.click())")
            browser.press("j")
        browser.press("/", *"<script>", "Enter")
        browser.sees("mark", "<script>")
        assert browser.run("return window.pwned") is None
        assert browser.run("return document.scripts.length") == 2
        assert browser.run("return document.querySelectorAll('img, style, base, meta').length") == 6
        assert "\\u202e" in browser.run("return document.body.textContent")

    @pytest.mark.parametrize(
        ("tag", "what"),
        [("script", "text: 'window.pwned = 1'"), ("img", "src: 'http://127.0.0.1:9/'")],
    )
    def test_the_page_may_not_load_or_run_anything_else(self, browser, tag, what):
        browser.show([])
        element = f"Object.assign(document.createElement('{tag}'), {{{what}}})"
        browser.run(f"document.body.append({element})")
        assert browser.run("return window.pwned") is None
        [problem] = browser.problems()
        assert "Content Security Policy" in problem

    def test_a_page_of_2000_steps_and_20_megabytes_remains_usable(self, browser):
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

    def test_a_failed_request_is_shown_with_its_prompt_error_and_messages(self, browser):
        agent = Agent(
            llm=ScriptedModel(call("page", n=1), ServerError("503: <busy>")), tools=[page]
        )
        with pytest.raises(ServerError):
            agent.run_sync("Read the book.")
        browser.show(agent.log)
        browser.sees(".run", "Read the book.")
        browser.press("e")
        browser.sees("#figures", "Turn 2 of 2", "the request failed")
        browser.sees(".did", "ServerError", "503: <busy>")
        browser.sees(".saw", "page 1 of the book")
        browser.sees(".row[aria-current]", "ServerError", "the request failed")

    def test_the_list_can_be_filtered_by_errors_or_by_tool(self, browser, tmp_path):
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
            browser.run(CHOOSE.format(choice))
            assert len(browser.find(".row:not(.gone)")) == turns
            assert browser.run("return !!document.querySelector('.row[aria-current]:not(.gone)')")

    def test_a_call_shows_its_approver_and_its_duration(self, browser):
        first, second = ToolCall("a", "pay", '{"amount": 6}'), ToolCall("b", "look")
        log = [
            RunStart(at=1.0),
            UserMessage("go"),
            SideRequest(usage=Usage(9, 1), purpose="compaction"),
        ]
        log += [AssistantMessage("", [first, second], seconds=2.0)]
        log += [Ask("a", "it costs money", at=3.0), Decision("a", True, "fine", by="Ann", at=9.0)]
        log += [ToolStart("b", at=3.0), ToolStart("a", at=9.0)]
        log += [
            replace(second.answer("seen"), seconds=1.0),
            replace(first.answer("paid"), seconds=2),
        ]
        browser.show(log)
        browser.sees(".card", "it costs money", "allowed by Ann", "fine")
        browser.sees("article", "side request", "compaction", "9 tokens in, 1 out")
        assert browser.text(".times").split("\n") == [
            *(
                "model",
                "2.00 s",
                "asked Ann",
                "6.00 s",
                "pay amount=6",
                "2.00 s",
                "look ",
                "1.00 s",
            ),
        ]
        tracks = "return [...document.querySelectorAll('.track span')].map((e) => e.offsetLeft)"
        model, asked, paid, looked = browser.run(tracks)
        assert model < asked == looked < paid

    def test_an_answer_is_rendered_as_markdown_and_a_search_finds_its_text(self, browser):
        answer = (
            "# Eggs\n\nThere are **12** in `pantry`:\n\n- six\n- <b>six</b>\n\n```py\n**x**\n```"
        )
        browser.show([UserMessage("go"), AssistantMessage(answer)])
        for css, text in (("h3", "Eggs"), ("b", "12"), ("code", "pantry"), ("pre", "**x**")):
            assert browser.text(f".said {css}") == text
        assert browser.text(".said .item") == "• six\n• <b>six</b>"
        browser.press("/", *"**12", "Enter")
        browser.sees("mark", "**12")

    def test_an_open_turn_is_printed_completely(self, browser):
        browser.show([UserMessage("go"), AssistantMessage("line\n\n" * 300)])
        pdf = base64.b64decode(browser.ask("POST", "/print"))
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 3

    def test_missing_and_interrupted_replies_are_labelled(self, browser):
        log = [RunStart(at=1.0), UserMessage("go")]
        for early in ([], log, [*log, RunEnd("cancelled", at=1.0)]):
            browser.show(early)
            browser.sees("article", "has no reply yet")
        log += [AssistantMessage(tool_calls=[ToolCall("a", "pay")]), ToolStart("a", at=1.0)]
        log += [UserMessage("and?"), AssistantMessage("Noth", stop_reason="interrupted")]
        log += [UserMessage("well"), AssistantMessage(tool_calls=[ToolCall("b", "pay")])]
        browser.show(log)
        browser.sees(".card pre", "Interrupted: this call had started")
        browser.sees("article", "does not contain the system prompt and the tools")
        browser.press("j")
        browser.sees(".saw summary", "result of pay")
        browser.sees("#figures", "cut off: interrupted")
        browser.press("j")
        browser.sees(".call", "no result yet")
        browser.sees("#errors", "2 errors")
        browser.show(log, live=True)
        browser.sees("#errors", "1 error")

    def test_undone_turns_remain_in_the_list_and_are_marked(self, browser, tmp_path):
        logs, _ = undone_session(tmp_path)
        browser.show(*logs)
        assert len(browser.find(".row")) == 3
        browser.sees(".row.undone", "Answer 2.", "undone")
        runs = "return [...document.querySelectorAll('.run')].map((e) => e.className)"
        assert browser.run(runs) == ["run", "run undone", "run"]
        browser.sees(".note", "Turn 2 was undone.")
        browser.press("End")
        browser.sees("#figures", "Turn 3 of 3")
        browser.click(".saw summary", "earlier")
        browser.sees(".saw", "Answer 1.")
        assert "Answer 2." not in browser.text(".saw")
        browser.press("k")
        browser.sees("#figures", "Turn 2 of 3", "undone")
        browser.run(CHOOSE.format("Taken back"))
        assert len(browser.find(".row:not(.gone)")) == 1

    def test_the_text_of_memory_files_is_shown_with_the_messages(self, browser, tmp_path):
        log, _ = session_with_memory(tmp_path)
        browser.show(log)
        browser.click("summary", "memory files")
        browser.sees("article", "Use tabs.")

    def test_a_pruned_result_shows_the_time_and_the_reason(self, browser, tmp_path):
        browser.show(book(tmp_path)[0])
        browser.press(*"j" * 5)
        browser.sees("article", "Pruned before this request: 4 results", "page n=0, page n=1")
        browser.press("Home")
        browser.sees(".call", "pruned from turn 6 on")
        browser.press("e")
        assert "pruned" not in browser.text(".call")  # an error is never pruned
        browser.click(".saw summary", "earlier")
        browser.click(".saw summary", "pruned")
        browser.sees(".saw", "Requests keep at least the newest result of page")

    def test_hook_verdicts_and_the_end_of_a_run_appear_with_their_turn(self, browser):
        first, second = ToolCall("a", "pay"), ToolCall("b", "look")
        log = [RunStart(at=1.0), UserMessage("go"), HookVerdict("UserPromptSubmit", "none")]
        log += [
            AssistantMessage("", [first, second]),
            HookVerdict("PreToolUse", "deny", "no money"),
        ]
        log += [first.answer("Denied", is_error=True, origin="denied"), second.answer("seen")]
        log += [
            RunEnd("limit:tokens"),
            RunStart(at=9.0),
            UserMessage("and?"),
            AssistantMessage("x"),
        ]
        browser.show(log)
        browser.sees("article", "hooks of UserPromptSubmit", "hooks of PreToolUse", "no money")
        browser.sees("article", "the run ended", "limit:tokens")
        browser.press("j")
        assert "hooks of" not in browser.text("article")

    def test_the_requests_of_a_sub_agent_are_children_of_its_call(self, browser):
        inner = Agent(llm=ScriptedModel(call("page", n=1), "It is a book."), tools=[page])
        outer = ScriptedModel(call("research", prompt="What is it?"), "A book.")
        agent = Agent(llm=outer, tools=[as_tool(inner, "research", "Looks something up")])
        agent.run_sync("What is it?")
        browser.show(agent.log)
        browser.sees(".row", "↳ 2 requests of sub-agents")
        browser.sees(".card", "research, a sub-agent: 2 turns", "research 1", "It is a book.")
        browser.click("summary", "research 1")
        browser.sees("details .call", "page", "✓ ok")
        browser.press("t")
        browser.sees(".times", "    research 1 page n=1", "    research 2 It is a book.")
        browser.press("t", "j")
        assert "sub-agent" not in browser.text("article")
        side = [record for record in agent.log if not isinstance(record, SubAgentRecord)]
        browser.show(side)  # a session of version 0.6
        browser.sees(".card", "request of a sub-agent", "requested 1 call")
        browser.press("t")
        browser.sees(".times", "    request of a sub-agent")

    def test_nested_calls_are_shown_below_their_call_and_their_errors_count(self, browser):
        @tool
        async def pages(agent: Annotated[Loop, Depends(current_agent)]) -> str:
            """Look at two pages."""
            for n in (1, 6):
                with suppress(ToolError):
                    await agent.call(page, n=n)
            return "That is all."

        agent = Agent(llm=ScriptedModel(call("pages"), "Done."), tools=[page, pages])
        agent.run_sync("Read.")
        browser.show(agent.log)
        browser.sees("#errors", "1 error")
        browser.sees(".row", "1 error")
        browser.sees(".card .card .call", "page", "✓ ok", "error")
        browser.sees(".card .card pre", "page 1 of the book", "1 page is missing")
        assert "page (2)" in browser.text("#filter")

    def test_every_failure_in_a_long_session_is_found_with_three_actions(self, browser):
        in_sight = """return [...document.querySelectorAll('article pre')].filter((e) => {
            const place = e.getBoundingClientRect();
            return place.height && place.bottom > 0 && place.top < innerHeight;
        }).map((e) => e.textContent).join()"""
        log = long_session_with_failures()
        for turn, words in enumerate(FAILURES):
            browser.show(log)
            browser.sees("#filter", "Errors (5)")
            assert words not in browser.run(in_sight)
            browser.run(CHOOSE.format("Errors"))
            browser.ask("POST", browser.find(".row:not(.gone)")[turn] + "/click")
            browser.press("e")
            assert words in browser.run(in_sight)

    def test_the_next_error_may_be_in_the_same_turn(self, browser):
        calls = [ToolCall(f"c{n}", "look") for n in range(3)]
        results = [tool_call.answer("x\n" * 99, is_error=True) for tool_call in calls[::2]]
        log = [UserMessage("go"), AssistantMessage("", calls), *results, calls[1].answer("seen")]
        browser.show([*log, AssistantMessage("", [ToolCall("d", "look")])])
        cards = browser.find(".call")
        place = "return document.querySelectorAll('.call')[{}].getBoundingClientRect().top"
        for key, card in (("e", 0), ("e", 2)):
            browser.press(key)
            assert 0 < browser.run(place.format(card)) < 900
        browser.press("e")
        browser.sees("#figures", "Turn 2 of 2")
        browser.press("e")
        browser.sees("#figures", "Turn 1 of 2")
        assert len(cards) == 3

    def test_an_interrupted_stream_is_described_and_its_partial_text_is_shown(self, browser):
        attempt = SideRequest(purpose="failed attempt", text='It is "a book')
        browser.show(
            [RunStart(), UserMessage("go"), attempt, RunEnd("error", describe_error(CUT_OFF))]
        )
        browser.sees("#figures", "Turn 1 of 1", "the request failed")
        browser.sees(".did", "the stream ended before the reply was complete")
        browser.sees("article .label", "failed attempt", "the received part")
        browser.sees("article pre", 'It is "a book')
        assert "data: {" not in browser.text("body")
        browser.click("summary", "the recorded error")
        browser.sees(".did pre", "data: {")

    def test_a_whole_session_is_printed(self, browser, tmp_path):
        log, _ = book(tmp_path)
        browser.show(log)
        browser.run("window.print = () => { window.printed = true; }")
        browser.press("j")
        browser.click("#whole")
        assert browser.run("return window.printed")
        text = browser.text("article")
        assert [f"Turn {n} of 25" in text for n in range(27)] == [False, *[True] * 25, False]
        for words in ("You read books.", "And now?", "The book has no end.", "1 page is missing"):
            assert words in text
        assert text.count("word " * 1_999) == 20
        pdf = base64.b64decode(browser.ask("POST", "/print"))
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 25
        assert browser.faults(axe()) == []
        browser.press("j")
        browser.sees("#figures", "Turn 3 of 25")
        browser.press("p", "p")
        browser.sees("#figures", "Turn 3 of 25")

    def test_a_tool_error_that_ends_the_run_is_not_a_failed_request(self, browser):
        @tool
        async def fail() -> str:
            """Fail."""
            raise OSError("the disk is full")

        model = ScriptedModel(call("fail"))
        agent = Agent(llm=model, tools=[fail], on_tool_error="raise")
        with pytest.raises(OSError, match="disk"):
            agent.run_sync("go")
        browser.show(agent.log)
        browser.sees("#figures", "Turn 1 of 1")
        browser.sees("article", "the run ended", "the disk is full")
        browser.sees(".note", "Ended: error")

    def test_two_requests_are_compared_message_by_message(self, browser, tmp_path):
        browser.show(book(tmp_path)[0])
        browser.press(*"jjjjj", "d")
        browser.sees(".pair", "of 25", "2,593 tokens in")
        browser.sees(".card.less", "result of page n=0", "page 0 of the book")
        browser.sees(".card.more", "[Older result", "pruned", "→ page n=4")
        browser.sees(
            "article", "2 messages in both", "The system prompt and the tools are the same."
        )
        browser.run(
            "const n = document.querySelector('#against'); n.value = 2;"
            "n.dispatchEvent(new Event('change'))"
        )
        browser.sees(".pair", "2,512 tokens in")
        browser.press("d")
        browser.sees("article h2", "REPLY AND CALLS")

    def test_all_times_of_a_session_are_on_one_page_and_link_to_their_turns(self, browser):
        first, second = ToolCall("a", "pay"), ToolCall("b", "look")
        log = [
            RunStart(at=100.0),
            UserMessage("Pay it."),
            AssistantMessage("", [first], seconds=2.0),
        ]
        log += [ToolStart("a", at=102.0), replace(first.answer("paid"), seconds=4.0)]
        log += [AssistantMessage("", [second], seconds=1.0), ToolStart("b", at=107.0)]
        log += [replace(second.answer("seen"), seconds=1.0), RunEnd("error", "503", at=110.0)]
        browser.show(log)
        browser.click("#times")
        browser.sees("article h2", "PAY IT.", "3 turns · 10.0 s")
        lines = browser.text(".times").split("\n")
        assert lines[:6] == ["1 pay ", "6.00 s", "    model", "2.00 s", "    pay ", "4.00 s"]
        assert lines[-2:] == ["3 503", "2.00 s"]
        browser.click(".times", "2 look")
        browser.sees("#figures", "Turn 2 of 3")
        browser.sees("article h2", "REPLY AND CALLS")

    def test_two_sessions_are_shown_side_by_side_with_their_first_difference(self, browser):
        look, ask = ToolCall("a", "look"), ToolCall("a", "look", '{"at": 2}')
        begin = [RunStart(system_prompt="You look.\nSay all."), UserMessage("go")]
        other = [RunStart(system_prompt="You look.\nBe brief."), UserMessage("go")]
        begin += [
            AssistantMessage("I look.", [look]),
            look.answer("seen"),
            AssistantMessage("Yes."),
        ]
        other += [
            AssistantMessage("I look.", [look]),
            look.answer("seen"),
            AssistantMessage("", [ask]),
        ]
        beside = {"title": "other.jsonl"} | data_of([*other, ask.answer("2")])
        browser.show(begin, beside=beside)
        browser.sees("#totals", "The first turn that differs: 2")
        assert len(browser.find("nav section")) == 2
        browser.press("j")
        browser.sees("#figures", "Turn 2 of book.jsonl")
        browser.press("d")
        browser.sees("article", "3 messages in both", "Yes.", "1 character")
        assert browser.text("b.new") == "Say all.\nBe brief."
        browser.click("nav section:last-child .row", "I look.")
        browser.sees("#figures", "Turn 1 of other.jsonl")
        browser.press("k")
        browser.sees("#figures", "Turn 1 of other.jsonl")

    def test_the_records_of_a_turn_are_copied_as_stored_in_the_session(self, browser):
        look = ToolCall("a", "look", '{"at": 2}')
        log = [
            RunStart(at=1.0),
            UserMessage("go"),
            AssistantMessage("I look.", [look], seconds=2.0),
        ]
        log += [Ask("a", "far", at=3.0), Decision("a", True, at=4.0), ToolStart("a", at=5.0)]
        log += [look.answer("seen"), RunEnd("error", "503", at=6.0)]
        browser.show(log)
        browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        for at, records in enumerate([log[2:7], log[7:]]):
            browser.press(*"j" * at, "c")
            copied = json.loads(browser.wait("return window.copied"))
            assert copied == [json.loads(dump_record(record)) for record in records]

    def test_a_click_on_the_error_count_opens_the_first_error(self, browser, tmp_path):
        browser.show(book(tmp_path)[0])
        browser.press("End")
        browser.click("#errors", "3 errors")
        browser.sees("#figures", "Turn 7 of 25")
        browser.press("e", "e")
        browser.sees("#figures", "Turn 21 of 25")
        browser.press("e")
        browser.sees("#figures", "Turn 7 of 25")

    def test_tables_quotes_and_lists_are_rendered_and_links_are_text(self, browser):
        answer = (
            "Two:\n- one\n  goes on\n  1. <i>nested</i>\n\n| a | b |\n|---|:-:|\n| 1 | `x|y` |\n\n"
            "> said [here](javascript:alert(1))\n~~~\n# no heading\n~~~\n\n```\nnever closed"
        )
        browser.show([UserMessage("go"), AssistantMessage(answer)])
        assert browser.text(".said .item") == "• one\ngoes on\n1. <i>nested</i>"
        assert browser.text(".said tr:first-child") == "a b"
        assert browser.text("blockquote") == "said here (javascript:alert(1))"
        assert browser.text(".said pre") == "# no heading\nnever closed"
        assert not browser.find("article a, article i, article h3")

    def test_a_live_page_updates_without_changing_the_open_turn(self, browser, tmp_path):
        log = book(tmp_path)[0]
        path = browser.show(log[:40], live=True)
        browser.press("j", "j")
        browser.click(".saw summary", "earlier")
        browser.click(".saw summary", "Read the book.")
        opened = browser.text(".saw")
        path.write_bytes(page_of("book.jsonl", log, live=True))
        browser.wait("return document.querySelectorAll('.row').length === 25")
        browser.sees("#figures", "Turn 3 of 25")
        assert browser.text(".saw") == opened
        path.write_bytes(page_of("book.jsonl", log[:-5], live=True))
        browser.press("End")
        browser.wait("return document.querySelectorAll('.row').length === 24")
        path.write_bytes(page_of("book.jsonl", log, live=True))
        browser.wait(
            "return document.querySelector('#figures').textContent.includes('Turn 25 of 25')"
        )
