"""`agentloop view -o run.svg`: one picture says what a session did and where it failed."""

from xml.etree import ElementTree

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    ScriptedModel,
    ServerError,
    Session,
    Summary,
    ToolCall,
    Usage,
    UserMessage,
    call,
    tool,
)
from agentloop.cli.main import main
from agentloop.cli.picture import picture_of
from agentloop.common.pruned import Pruned
from agentloop.mixins.approval import Approval
from agentloop.toolkits.subagent import as_tool
from agentloop.transcript import Fork, Reset, RunEnd, RunStart

SVG = "{http://www.w3.org/2000/svg}"


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"a {at}"


@tool
async def open_door() -> str:
    """Open the door."""
    raise RuntimeError("stuck")


@tool
async def burn() -> str:
    """Burn it."""
    return "burnt"


def asks(*calls, tokens, cached=0):
    """Return a reply with calls, for a request of this many tokens."""
    made = [ToolCall(f"{tokens}_{at}", name, "{}") for at, name in enumerate(calls)]
    return AssistantMessage("", made, usage=Usage(tokens, 10, cached_input_tokens=cached))


class Careful(Approval, Agent):
    approval_mode = "auto"
    approval_rules = [["deny", "burn"]]


def texts_of(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def shapes_of(svg, kind):
    found = ElementTree.fromstring(svg).iter()
    return [each for each in found if each.get("class") == kind and each.tag != f"{SVG}text"]


async def test_the_picture_has_the_prompt_the_answer_and_the_figures():
    answer = AssistantMessage("It is a lamp.", usage=Usage(3000, 20, cached_input_tokens=1000))
    first = AssistantMessage("", [ToolCall("1", "look", '{"at": "lamp"}')], usage=Usage(1000, 10))
    agent = Agent(llm=ScriptedModel(first, answer), tools=[look])
    await agent.run("What is\n  that?")
    prompt, facts, *_, answered = texts_of(picture_of(agent.log))
    assert prompt == "What is that?"
    assert answered == "It is a lamp."
    assert facts.startswith("2 turns · 1 call · ")
    assert "4k tokens in, 25% cached · 30 out" in facts
    assert len(shapes_of(picture_of(agent.log), "new")) == 3, "two columns, and the legend"


async def test_the_largest_request_is_compared_with_the_window_of_the_model():
    reply = AssistantMessage("Fine.", usage=Usage(262_144, 10), model="gemini-flash-latest")
    agent = Agent(llm=ScriptedModel(reply))
    await agent.run("How are you?")
    assert "fills 25% of the window of 1.0M" in " ".join(texts_of(picture_of(agent.log)))


async def test_the_figures_include_the_requests_of_summaries_and_sub_agents():
    pytest.importorskip("genai_prices")
    reply, usage = AssistantMessage("Read.", usage=Usage(7_000, 10)), Usage(2_000, 20)
    reader = Agent(llm=ScriptedModel(call("look", at="x"), reply), tools=[look])
    asks_reader = AssistantMessage("", [call("read", prompt="Read.")], usage=usage)
    boss = Agent(
        llm=ScriptedModel(asks_reader, AssistantMessage("Long.", usage=usage)),
        tools=[as_tool(reader, "read", "Reads a book.")],
    )
    await boss.run("How long is it?")
    summary = Summary("It is long.", 2, model="gpt-5-mini", usage=Usage(1_000_000, 0))
    assert " · 11k tokens in" in texts_of(picture_of(boss.log))[1]
    _, facts, *_ = texts_of(picture_of([*boss.log, summary]))
    assert facts.startswith("2 turns · 1 call · ")
    assert " · 1.0M tokens in" in facts
    assert facts.endswith(" · $0.2500"), "a scripted model is free"
    unpriced = Summary("It is long.", 2, model="own", usage=Usage(1_000, 0))
    _, facts, *_ = texts_of(picture_of([*boss.log, summary, unpriced]))
    assert facts.endswith(" · at least $0.2500")


async def test_requests_without_reported_usage_have_columns_of_estimated_tokens():
    agent = Agent(llm=ScriptedModel("Fine."))
    await agent.run("How are you? " * 40)
    svg = picture_of(agent.log)
    assert "tokens of each request, estimated:" in texts_of(svg)
    column = shapes_of(svg, "new")[0]
    assert float(column.get("height")) == 150


def test_estimated_tokens_are_those_of_the_messages_after_a_summary():
    long, summary = AssistantMessage("I am fine. " * 40), Summary("It's fine.", 4, model="m")
    log = [UserMessage("Go."), long, UserMessage("More."), AssistantMessage("Two.")]
    log += [summary, AssistantMessage("Three.")]
    *_, before, after = shapes_of(picture_of(log), "new")[:-1]
    assert float(after.get("height")) < float(before.get("height")) / 2


async def test_failed_and_denied_calls_are_counted_and_marked_in_their_turns():
    llm = ScriptedModel(asks("open_door", tokens=1000), asks("burn", tokens=2000), "I give up.")
    agent = Careful(llm=llm, tools=[open_door, burn])
    await agent.run("Leave.")
    svg = picture_of(agent.log)
    assert "1 error · 1 denied" in texts_of(svg)
    [failed], [denied] = (
        [shape for shape in shapes_of(svg, kind) if shape.tag == f"{SVG}circle"]
        for kind in ("failed", "denied")
    )
    assert float(failed.get("cx")) < float(denied.get("cx"))


async def test_a_run_without_an_answer_says_how_it_ended():
    agent = Agent(llm=ScriptedModel(call("look", at="x"), "Nothing."), tools=[look])
    agent.max_iterations = 1
    await agent.run("Look.")
    assert "max_iterations" in texts_of(picture_of(agent.log))


async def test_a_run_that_failed_says_why():
    agent = Agent(llm=ScriptedModel(ServerError("the model is on fire")))
    with pytest.raises(ServerError):
        await agent.run("Look.")
    assert "ServerError: the model is on fire" in texts_of(picture_of(agent.log))


async def test_a_run_in_progress_has_not_ended_like_the_run_before():
    agent = Agent(llm=ScriptedModel(ServerError("the model is on fire")))
    with pytest.raises(ServerError):
        await agent.run("Look.")
    svg = picture_of([*agent.log, RunStart(), UserMessage("Again.")])
    assert "fire" not in svg


async def test_tools_and_sub_agents_have_lanes_below_the_model():
    reader = Agent(llm=ScriptedModel(call("look", at="book"), "A long book."), tools=[look])
    boss = Agent(
        llm=ScriptedModel(call("read", prompt="Read it."), "Long."),
        tools=[as_tool(reader, "read", "Reads a book.")],
    )
    await boss.run("How long is it?")
    texts = texts_of(picture_of(boss.log))
    assert texts.index("model") < texts.index("read")


def test_a_summary_is_a_line_between_two_columns():
    first, second = AssistantMessage("One."), AssistantMessage("Two.")
    summary = Summary("They said one.", 3, model="m")
    svg = picture_of([RunStart(), UserMessage("Go."), first, summary, second])
    assert "summarized" in texts_of(svg)
    assert "pruned" in texts_of(picture_of([first, Pruned(["1"]), second]))
    assert "dropped" in texts_of(picture_of([first, Summary("", 1), second])), "without a request"
    assert len(shapes_of(svg, "cut")) == 1


@pytest.mark.parametrize(
    "words", ["</svg><script>alert(1)</script>", "\x00\ud800\ufffe{{data}}", "&amp;"]
)
async def test_a_text_of_the_session_is_only_text(words):
    agent = Agent(llm=ScriptedModel(words))
    await agent.run("> " + words)
    svg = picture_of(agent.log)
    assert "<script" not in svg
    assert "{{" not in svg
    shown = [text for text in texts_of(svg) if text.startswith("> ")]
    assert len(shown) == 1


async def test_invisible_characters_are_visible():
    agent = Agent(llm=ScriptedModel("Fine."))
    await agent.run("rm \u202etxt.ton\x1b[31m")
    assert texts_of(picture_of(agent.log))[0] == r"rm \u202etxt.ton\x1b[31m"


def test_labels_of_changes_do_not_overlap():
    log = [AssistantMessage("x", usage=Usage(1_000, 1)) for _ in range(300)]
    log[150:150] = [Summary("They talked.", 100, model="m")]
    log[152:152] = [Pruned(["1"])]
    log[250:250] = [Pruned(["2"])]
    svg = picture_of(log)
    labels = [text for text in texts_of(svg) if text in ("summarized", "pruned")]
    assert labels == ["summarized", "pruned"], "the second of three is a line without a label"
    assert len(shapes_of(svg, "cut")) == 3


def test_a_long_session_has_minutes():
    svg = picture_of([RunStart(at=0.0), RunEnd("completed", at=1_942.3)])
    assert "32 min" in texts_of(svg)


def test_the_clock_stands_still_between_runs():
    run = [RunStart(at=100.0), UserMessage("Go."), AssistantMessage("One.")]
    svg = picture_of([Reset(at=5.0), *run, RunEnd("completed", at=104.0), Fork(at=9_000.0)])
    assert "4.0 s" in texts_of(svg)


def test_an_empty_session_has_a_picture():
    assert "0 turns · 0 calls" in " ".join(texts_of(picture_of([])))


def test_the_command_writes_a_picture_without_scripts_that_only_the_owner_may_read(
    tmp_path, monkeypatch, capsys
):
    class Saved(Session, Agent):
        pass

    monkeypatch.chdir(tmp_path)
    with Saved(llm=ScriptedModel("Fine."), session="s", session_dir=tmp_path) as agent:
        agent.run_sync("How are you?")
    assert main(["view", "s.jsonl", "-o", "run.svg"]) == 0
    shown = capsys.readouterr().out
    assert "run.svg: " in shown
    assert "if there's one" in shown, "a killed session has no answer"
    svg = (tmp_path / "run.svg").read_text(encoding="utf-8")
    assert (tmp_path / "run.svg").stat().st_mode & 0o077 == 0
    assert "<script" not in svg
    assert svg.count("http") == svg.count("http://www.w3.org/2000/svg") == 1
    assert len(svg) < 8_000
