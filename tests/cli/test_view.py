"""The page to look into a run: what is in it, and what a person at a browser finds there."""

import base64
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
from agentloop.cli.view import page_data, page_of, pruned
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
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Kept(Inbox, Session, Offload, Agent):
    pass


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
    """A session with all that a page can show: its log, and the folder of its offloaded results.

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
    return read_log(folder / "book.jsonl"), folder / "offloaded"


# ---- what is in it


async def seen_by_ephemeral(script, tools):
    llm = ScriptedModel(*script)
    agent = Ephemeral(llm=llm, tools=tools, max_iterations=len(script) + 1)
    await agent.run("go")
    return agent.log, llm.requests


async def test_what_is_pruned_is_what_the_model_did_not_see():
    script = [*(call("page", n=n) for n in range(40)), "end"]
    log, requests = await seen_by_ephemeral(script, [page])
    found = pruned(log)
    for turn, request in enumerate(requests):
        for message in request.messages:
            if isinstance(message, ToolMessage):
                since, text = found.get(message.tool_call_id, (turn + 1, ""))
                assert message.text.startswith("[An older") == (since <= turn)
                assert since > turn or message.text == text
    assert len(found) > 20


def test_what_cannot_be_shown_is_named():
    parts = [TextPart("see"), ImagePart(data=PNG, media_type="image/png")]
    parts += [ImagePart(data=b"<svg>", media_type="image/svg+xml"), ImagePart(url="http://x/y.png")]
    data = page_data([RunStart(at=1.0), UserMessage(parts)])["records"][1]
    assert data["text"] == "see"
    assert data["images"] == ["data:image/png;base64," + base64.b64encode(PNG).decode()]
    assert data["others"] == ["ImagePart: image/svg+xml, 5 bytes", "ImagePart: http://x/y.png"]


def test_an_offloaded_result_is_read_from_its_folder_only_and_only_if_it_is_the_one(tmp_path):
    log, folder = book(tmp_path)

    def originals(folder):
        return {
            record["offloaded"]: record["original"]
            for record in page_data(log, folder)["records"]
            if record and "offloaded" in record
        }

    names = originals(None)
    assert set(names.values()) == {None}
    assert {text.count("\n") for text in originals(folder).values()} == {999}
    (folder / next(iter(names))).write_text("changed")
    assert None in originals(folder).values()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    log = [
        ToolMessage("1", "t", "x", extra={"offloaded": name}) for name in ("../secret", str(secret))
    ]
    assert set(originals(folder).values()) == {None}


def test_cost_comes_from_a_price_function():
    reply = AssistantMessage("hi", usage=Usage(1000, 10), model="m")
    log = [RunStart(at=1.0), UserMessage("go"), reply, SideRequest(Usage(5, 5), model=None)]
    data = page_data(log, price=lambda model, usage: usage.input_tokens / 1000)
    assert data["turns"][0]["cost"] == 1.0
    assert data["records"][3]["cost"] is None
    assert page_data(log)["turns"][0]["cost"] is None


def test_text_cannot_leave_the_data():
    log = [RunStart(at=1.0), *(UserMessage(text) for text in EVIL)]
    written = page_of(EVIL[0] + "{{data}}", log).decode()
    [data] = re.findall(
        '<script type="application/json" id="data">(.*?)</script>', written, re.DOTALL
    )
    assert not set("<>&\u2028\u2029") & set(data)
    texts = [record["text"] for record in json.loads(data)["records"][1:]]
    assert texts == list(EVIL)
    assert written.count("<script") == 2
    assert "&lt;/script&gt;&lt;script&gt;window.pwned" in written.split("<title>")[1]


def test_nothing_in_it_comes_from_elsewhere_and_nothing_is_markup():
    text = (ROOT / "agentloop" / "cli" / "view.html").read_text(encoding="utf-8")
    code = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(
        r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", code
    )
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
    again = run("view", "../book.jsonl", cwd=tmp_path / "offloaded")
    assert (again.returncode, "there is book.html already" in again.stderr) == (2, True)
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
        (["s.jsonl", "-o", "s.jsonl"], "-o names the session itself"),
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


def opened(browser, folder, log, offloaded=None, title="book.jsonl"):
    path = folder / "run.html"
    path.write_bytes(page_of(title, log, offloaded))
    browser.open(path)
    browser.wait("return document.querySelector('#timeline .row, #detail p')")
    return path


def test_the_context_of_each_turn_is_what_the_model_was_sent(browser, tmp_path):
    requests = []
    log, _ = book(tmp_path, requests=requests)
    opened(browser, tmp_path, log)
    shown = browser.run(
        "return turns.map((_, t) => contextOf(t).map(({at, call}) => at == null ? call.sealed :"
        "records[at].stale <= t ? records[at].placeholder : records[at].text))"
    )
    assert [[text.split("summarized:\n\n")[-1] for text in sent] for sent in requests] == shown
    assert len(shown) == 25


@pytest.mark.slow
def test_clicking_a_turn_shows_what_the_model_saw_and_did(browser, tmp_path):
    opened(browser, tmp_path, *book(tmp_path))
    assert browser.text("#detail h2") == "Turn 1"
    browser.click(".row", "Next page.")
    assert "Turn 2" in browser.text("#detail h2")
    assert "a-model" in browser.text("#detail .top")
    assert "page 0 of the book" in browser.text("#context li.new pre")
    assert "✓ ok" in browser.text(".call")
    assert browser.run("return location.hash") == "#turn=2"
    browser.press("e")
    assert "error" in browser.text(".call")
    assert "1 test failed: test_total" in browser.text(".card pre")


@pytest.mark.slow
def test_pruned_offloaded_and_summarized_messages_are_marked_with_the_originals_a_click_away(
    browser, tmp_path
):
    log, folder = book(tmp_path)
    opened(browser, tmp_path, log, folder)
    browser.press("j", "j", "j", "j", "j")
    assert "pruned" in browser.text("#detail h3")
    assert "page 0 of the book" not in browser.text("#context")
    browser.click("#context .head", "pruned")
    browser.click("#context .link", "Show the original")
    assert "page 0 of the book" in browser.text("#context")
    browser.press("G")
    assert "summary" in browser.text("#detail h3")
    browser.click("#context .head", "summary")
    assert "The pages 1 to 9 were read." in browser.text("#context pre")
    browser.click("#context .link", "that it stands for")
    browser.click("#context .card .more", "earlier")
    browser.click("#context .card .head", "page 0 of the book")
    assert "word word" in browser.text("#context .card pre")
    browser.click("#context .card .head", "offloaded")
    assert "line 555 of a long listing" not in browser.text("#context")
    browser.click("#context .card .link", "Show the original, ")
    browser.click("#context .card .link", "Show all")
    assert "line 555 of a long listing" in browser.text("#context")
    assert "Show its thinking" in browser.text("#reply")
    browser.click("#reply .link")
    assert "How odd." in browser.text("#reply")


@pytest.mark.slow
def test_searching_leaves_the_turns_that_have_it(browser, tmp_path):
    opened(browser, tmp_path, *book(tmp_path))
    browser.press("/", *"PAGE 3 of")
    browser.wait("return document.getElementById('found').textContent === '1 turn'")
    assert "Turn 4" in browser.text("#detail h2")
    assert browser.text("mark").split("\n")[0] == "page 3 of"
    assert len(browser.find(".row")) == 1
    browser.press("Escape")
    assert len(browser.find(".row")) > 5
    browser.press("/", *"((no such", "Enter")
    browser.wait("return document.getElementById('found').textContent === '0 turns'")
    assert browser.problems() == []


@pytest.mark.slow
def test_the_keyboard_does_it_all(browser, tmp_path):
    opened(browser, tmp_path, *book(tmp_path))
    browser.press("j", "j", "ArrowDown", "k", "ArrowUp", "j")
    assert "Turn 3" in browser.text("#detail h2")
    browser.press("G")
    assert "Turn 25" in browser.text("#detail h2")
    browser.press("?")
    assert browser.run("return document.getElementById('help').open")
    browser.press("Escape")
    assert not browser.run("return document.getElementById('help').open")


@pytest.mark.slow
def test_what_models_and_tools_say_is_text(browser, tmp_path):
    log = [RunStart(at=1.0)]
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
            ToolMessage(f"c{n}", name, evil, extra={"offloaded": evil}),
            ToolMessage(f"d{n}", name, [TextPart(evil), ImagePart(url=f"javascript:{evil}")]),
            Summary(evil, 1, model=evil),
        ]
    log += [AssistantMessage(EVIL[0]), RunEnd(EVIL[1])]
    opened(browser, tmp_path, log, title=EVIL[1])
    for _ in range(len(EVIL) + 1):
        for kind in (".head[aria-expanded=false]", ".link", ".more", ".link"):
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
    opened(browser, tmp_path, *book(tmp_path))
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
    assert len(browser.find("#detail *")) < 4000
    browser.press("G")
    assert "Turn 2,001" in browser.text("#detail h2")
    assert len(browser.find("#timeline .row")) < 60
    browser.press("/", *"needle1234", "Enter")
    browser.wait("return document.getElementById('found').textContent === '1 turn'")
    assert "Turn 1,235" in browser.text("#detail h2")
    assert len(browser.find("*")) < 6000
    assert browser.problems() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "log", [[], [RunStart(at=1.0), UserMessage("go")], [RunStart(at=1.0), RunEnd("error", at=1.0)]]
)
def test_a_session_without_an_answer_opens(browser, tmp_path, log):
    opened(browser, tmp_path, log)
    assert "no reply in this session yet" in browser.text("#detail")
    assert browser.problems() == []


@pytest.mark.slow
def test_calls_without_a_result_are_named(browser, tmp_path):
    log = [
        RunStart(at=1.0),
        UserMessage("go"),
        AssistantMessage(tool_calls=[ToolCall("a", "pay")]),
        ToolStart("a", at=1.0),
    ]
    log += [UserMessage("and?"), AssistantMessage("Nothing.")]
    opened(browser, tmp_path, log)
    assert "no result" in browser.text(".call")
    browser.press("j")
    assert "no result" in browser.text("#context .head")
    assert "Interrupted: this call had started" in browser.text("#context")


@pytest.mark.skipif(sys.platform == "win32", reason="needs modes")
def test_a_page_is_for_the_owner_only_also_where_a_file_was(tmp_path):
    Session(llm=ScriptedModel("ok"), session="s", session_dir=tmp_path).run_sync("go")
    page = tmp_path / "s.html"
    page.write_text("old")
    page.chmod(0o644)
    assert main(["view", str(tmp_path / "s.jsonl"), "-o", str(page)]) == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
