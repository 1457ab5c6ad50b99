"""The page that shows the loop: the line that wrote a record, and the view at that step."""

import asyncio
import inspect
import re
import runpy
from pathlib import Path

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    ScriptedModel,
    Stop,
    ToolCall,
    UserMessage,
    call,
    tool,
)
from agentloop.cli.view import data_of, page_of
from agentloop.common.pruned import Pruned
from agentloop.messages import Unknown
from agentloop.toolkits.subagent import as_tool
from agentloop.transcript import RunStart
from tests.helpers import record_all

from .browser import axe, chromium
from .command import ROOT
from .test_view import EVIL

PAGE = Path(inspect.getfile(page_of)).with_name("loop.html").read_text(encoding="utf-8")
LESSONS = ROOT / "examples" / "lessons"
LESSON = runpy.run_path(str(LESSONS / "make_loop_page.py"))
kitchen = LESSON["kitchen"]  # three runs: parallel calls and pruning; a cancellation; a summary


@tool
async def recipe(dish: str) -> str:
    """Return the ingredients of a dish."""
    return f"4 {dish} take 2 eggs"


@tool
async def stop() -> str:
    """Stop."""
    raise Stop("limit:patience", "enough")


def names_in_the_page():
    """Return the names of the calls associated with records in the page."""
    [body] = re.findall(r"(?s)function makers\(n\) \{(.*?)\n\}", PAGE)
    lists = re.findall(r'\[((?:"[\w.]+"(?:, )?)+)\]', re.sub(r"\[[^]]*\]\.includes", "", body))
    return {name for names in lists for name in re.findall(r'"([\w.]+)"', names)}


def test_every_line_that_writes_a_record_is_in_the_loop():
    source = inspect.getsource(Loop.run)
    assert names_in_the_page() >= {"only_run", "call_model", "call_tools", "finish", "context"}
    for name in names_in_the_page() - {"record"}:
        assert re.search(rf"\b{re.escape(name)}\(", source), f"{name}: which line writes them?"


async def test_the_view_of_every_step_equals_the_messages_of_the_agent():
    log = await kitchen()
    data = data_of(log, every=True)
    seen = []
    for at, row in enumerate(data["rows"]):
        seen = [*seen[: row["same"]], *row["then"]]
        agent = Agent(llm=ScriptedModel())
        record_all(agent, log[:at])
        sent = [message.text for message in await agent.context()]
        assert [data["messages"][place].get("content", "") for place in seen] == sent
    assert len(data["rows"]) == len(log) + 1


def test_the_page_of_the_lessons_shows_the_current_loop():
    page = (LESSONS / "watch_the_loop.html").read_bytes().replace(b"\r\n", b"\n")
    assert page == LESSON["page"](), "run examples/lessons/make_loop_page.py"


def test_the_lessons_refer_to_the_correct_records():
    data = data_of(asyncio.run(kitchen()), every=True)
    texts = []  # the view at each record
    seen = []
    for row in data["rows"]:
        seen = [*seen[: row["same"]], *row["then"]]
        texts.append("\n".join(str(data["messages"][place].get("content")) for place in seen))
    for name, words in (
        ("10_ephemeral", "Older result of"),
        ("11_compaction", "Summary of the conversation so far"),
        ("13_sessions", "this call had started and its outcome is unknown"),
    ):
        lesson = (LESSONS / f"{name}.py").read_text(encoding="utf-8")
        record = int(re.search(r"watch_the_loop.html .*(?:from|at) record (\d+)", lesson)[1])
        assert words in texts[record], name
        assert words not in texts[record - 1] or name == "13_sessions"


def test_the_page_loads_no_external_content_and_inserts_no_markup():
    bad = r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\("
    assert not re.search(bad, PAGE)
    assert "default-src 'none'" in PAGE


# ---- in a browser


@pytest.fixture(scope="module")
def one_browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(one_browser, tmp_path):
    """Yield a browser that opens the page of a log, and check its console at the end."""

    def show(log, title="kitchen.jsonl", at="", **size):
        path = tmp_path / "loop.html"
        path.write_bytes(page_of(title, log, loop=True))
        one_browser.open(path, **size)
        if at:
            one_browser.run(f"location.hash = '#record={at}'; location.reload()")
        one_browser.wait("return document.querySelector('#log *')")

    def steps():
        """Yield the highlighted line, the newest record and its description, step by step."""
        total = int(one_browser.run("return document.querySelector('#slider').max"))
        one_browser.press("Home")
        for _ in range(total):
            lit = one_browser.text("#code .lit").strip()
            yield lit, one_browser.text("#log .now"), one_browser.text("#what")
            one_browser.press("ArrowRight")

    one_browser.show, one_browser.steps = show, steps
    yield one_browser
    assert one_browser.problems() == []


@pytest.mark.slow
class TestInABrowser:
    async def test_the_line_that_wrote_a_record_is_highlighted(self, browser):
        browser.show(await kitchen())
        steps = [(lit, " ".join(record.split())) for lit, record, _ in browser.steps()]
        lines = {
            "mark the run starts": "only_run(",
            "user Make 8 pancakes.": "only_run(",
            "model I will look up": "self.add(",
            "mark take starts": "self.call_tools(",
            "result 8 pancakes take 4 eggs": "self.call_tools(",
            "mark the run ended: cancelled": "only_run(",
            "sealed Interrupted": "run.resume(",
            "user Are they done?": "only_run(",
            "model I do not know": "self.add(",
            "mark the run ended: completed": "run.end(result)",
            "mark summary: The task: 8 pancakes": "self.call_model(",
        }
        for begins, part in lines.items():
            highlighted = [
                lit for lit, record in steps if re.match(rf"\d+ {re.escape(begins)}", record)
            ]
            assert highlighted, begins
            assert all(part in lit for lit in highlighted), begins

    def test_a_record_with_a_type_that_is_not_text_is_shown(self, browser):
        browser.show([RunStart(), UserMessage("Go."), Unknown({"type": 7})])
        assert [record.split()[-1] for _, record, _ in browser.steps()][-1] == "7"

    async def test_the_records_of_a_sub_agent_are_labelled(self, browser):
        inner = Loop(llm=ScriptedModel("Two eggs."))
        outer = ScriptedModel(call("cook", prompt="How many?"), "Two.")
        agent = Loop(llm=outer, tools=[as_tool(inner, "cook", "Cooks")])
        await agent.run("How many eggs?")
        browser.show(agent.log)
        steps = [(lit, what) for lit, record, what in browser.steps() if "cook: Two" in record]
        [(lit, what)] = steps
        assert "self.call_tools(" in lit
        assert "A record of cook, a sub-agent" in what

    async def test_records_at_the_end_of_a_run_have_their_lines(self, browser):
        nudged = Agent(llm=ScriptedModel(" ", "Yes."))
        await nudged.run("Are there eggs?")
        browser.show(nudged.log)
        assert [lit for lit, record, _ in browser.steps() if "the library" in record] == [
            "if result and (result := await self.finish(result)):"
        ]
        endless = Agent(llm=ScriptedModel(call("recipe", dish="x"), "Enough."), tools=[recipe])
        endless.max_iterations = 1
        await endless.run("Go.")
        browser.show(endless.log)
        *_, note, reply, end = [lit for lit, _, _ in browser.steps()]
        assert "run.finish_now(" in note
        assert "run.finish_now(" in reply
        assert "run.finish_now(" in end
        stopped = Loop(llm=ScriptedModel(call("stop")), tools=[stop])
        await stopped.run("Go.")
        browser.show(stopped.log)
        assert "run.finish_now(" in [lit for lit, _, _ in browser.steps()][-1]

    async def test_the_view_shows_the_changes_of_a_step(self, browser):
        browser.show(await kitchen())
        seen = {}
        for _, record, what in browser.steps():
            changed = browser.text("#view .changed, #view .new, #view .gone").split("\n")
            seen[" ".join(record.split())] = what, changed
        at = {name.partition(" ")[2]: change for name, change in seen.items()}

        def of(begins):
            return next(change for name, change in at.items() if name.startswith(begins))

        what, rows = of("model I will look up")
        assert what.endswith("Messages: 3 added.")
        assert sum("Not run: the run ended" in row for row in rows) == 2
        what, rows = of("result 8 pancakes")
        assert what.endswith("Messages: 1 call got its result.")
        what, rows = of("mark 2 old results pruned")
        assert "2 results became placeholders" in what
        assert sum(row.startswith("[Older result of take removed") for row in rows) == 2
        what, rows = of("mark the run ended: cancelled")
        assert what.endswith("Messages: 1 call was sealed.")
        what, rows = of("mark summary")
        assert "9 removed" in what
        assert "replaces turns" in " ".join(rows)
        assert browser.text("#size").endswith("messages")

    async def test_the_page_opens_where_an_old_result_is_pruned(self, browser):
        log = await kitchen()
        browser.show(log)
        pruned = [isinstance(record, Pruned) for record in log].index(True) + 1
        step = browser.run("return document.querySelector('#step').textContent")
        assert step == f"record {pruned} of {len(log)}"

    async def test_keys_the_slider_and_buttons_navigate_between_records(self, browser):
        log = await kitchen()
        browser.show(log)
        number = "return document.querySelector('#step').textContent"
        total = len(log)
        for key, place in (("Home", 1), ("j", 2), ("ArrowRight", 3), ("k", 2), ("End", total)):
            browser.press(key)
            assert browser.run(number) == f"record {place} of {total}"
        browser.press("Home")
        browser.click("#on")
        browser.run(
            "const s = document.querySelector('#slider'); s.value = 7;"
            "s.dispatchEvent(new Event('input'))"
        )
        assert browser.run(number) == f"record 7 of {total}"
        assert browser.run("return location.hash") == "#record=7"
        assert len(browser.find("#log .row")) == 7
        browser.click("#play")
        browser.wait("return document.querySelector('#step').textContent.startsWith('record 8')")
        browser.click("#play")
        browser.sees("#play", "Play")

    async def test_long_lines_are_wrapped_and_the_terms_of_the_page_are_explained(self, browser):
        browser.show(await kitchen())
        lines = browser.run(
            "return [...document.querySelectorAll('#code div')].map(e => e.textContent)"
        )
        assert max(map(len, lines)) <= 72
        source = re.sub(r"\s+", "", inspect.getsource(Loop.run))
        assert re.sub(r"\s+", "", "".join(lines)) in source
        for word in ("←", "mark", "pruned", "open", "sealed"):
            assert word in browser.run("return document.body.innerText.toLowerCase()")

    @pytest.mark.parametrize("width", [1280, 900, 500])
    async def test_axe_reports_no_violation_at_any_record(self, browser, width):
        source = axe()
        browser.show(await kitchen(), width=width)
        for key in ("Home", *["ArrowRight"] * 10, "End"):
            browser.press(key)
            assert browser.faults(source) == []

    async def test_rows_can_be_opened_with_the_keyboard(self, browser):
        browser.show(await kitchen())
        browser.press("End")
        browser.run("document.querySelector('#log .row').focus()")
        expanded = "return document.querySelector('#log .row').getAttribute('aria-expanded')"
        for key, state in (("Enter", "true"), (" ", "false")):
            browser.press(key)
            assert browser.run(expanded) == state

    @pytest.mark.parametrize("width", [1280, 900, 500])
    async def test_the_whole_loop_is_visible_and_no_line_is_truncated(self, browser, width):
        browser.show(await kitchen(), width=width)
        browser.press("End")
        inside = """
            const code = document.querySelector('#fit').getBoundingClientRect();
            const lines = [...document.querySelectorAll('#code div')];
            return lines.every((line) => line.scrollWidth <= code.width + 1) && [
              lines.at(-1).getBoundingClientRect().bottom - code.bottom,
              document.documentElement.scrollWidth - innerWidth,
              document.documentElement.scrollHeight - innerHeight]"""
        below, wide, high = browser.run(inside)
        assert (wide, high) == (0, 0)
        assert below <= 1 or width == 500, "narrow pages may scroll"
        lit = "const e = document.querySelector('.lit'); const r = e.getBoundingClientRect();"
        assert browser.run(f"{lit} return document.elementFromPoint(r.x + 9, r.y + 5) === e")

    async def test_output_of_models_and_tools_is_inserted_as_text(self, browser):
        log = []
        for n, evil in enumerate(EVIL):
            request = ToolCall(f"c{n}", evil[:60], evil)
            log += [UserMessage(evil), AssistantMessage(evil, [request]), request.answer(evil)]
        browser.show(log, title=EVIL[1])
        for _ in browser.steps():
            pass
        assert browser.run("return window.pwned") is None
        assert browser.run("return document.scripts.length") == 2
        assert browser.run("return document.querySelectorAll('img, base, meta').length") == 4
        assert "\\u202e" in browser.run("return document.body.textContent")

    def test_a_long_session_renders_only_nearby_records(self, browser):
        log = [UserMessage("go")]
        for n in range(2000):
            request = ToolCall(f"c{n}", "stock", f'{{"item": "{n}"}}')
            log += [AssistantMessage("", [request]), request.answer(f"{n} eggs")]
        browser.show(log)
        browser.press("End")
        browser.sees("#log .now", "1999 eggs")
        browser.sees("#view", "1999 eggs", "messages unchanged")
        assert len(browser.find(".row")) < 200
        browser.show([])
        browser.sees("#log", "This session is empty.")
