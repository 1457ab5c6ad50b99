"""`agentloop replay`: a session turn by turn."""

import json
import re
from contextlib import suppress
from itertools import takewhile
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    Depends,
    Loop,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolMessage,
    UserMessage,
    call,
    dump_record,
    tool,
)
from agentloop.cli.main import main
from agentloop.depends import current_agent
from agentloop.toolkits.subagent import as_tool
from agentloop.transcript import (
    Reset,
    RunEnd,
    RunStart,
    SideRequest,
)

from .command import run
from .held_double import HeldDouble

TURNS = (
    ["I look. ", ("read", {"path": "notes.txt"}), ("bash", {"command": "cat notes.txt | wc -l"})],
    [("write", {"path": "notes.txt", "content": "milk\nbread\n"}), ("bash", {"command": "pwd"})],
    "There is bread on the list now.",
    [("bash", {"command": "rm notes.txt"})],
    "Then I leave it.",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a saved session of the chat; its parent is the home directory."""
    project = tmp_path_factory.mktemp("home") / "project"
    project.mkdir()
    (project / "notes.txt").write_text("milk\n")
    with HeldDouble(*TURNS) as server:
        model = ["--base-url", server.base_url, "--model", "m", "--session", "list"]
        for prompt in (["Add bread to my list.", "--yes"], ["Delete it."]):  # without approval
            done = run(*model, "--prompt", *prompt, cwd=project, HOME=str(project.parent))
            assert done.returncode == 0, done.stderr
    return project


def replay(folder, *arguments):
    return run("replay", *arguments, cwd=folder, HOME=str(folder.parent))


def write(path, *records):
    lines = [b'{"type":"session","schema":2}', *map(dump_record, records), b""]
    path.write_bytes(b"\n".join(lines))


def test_replay_shows_every_turn(folder):
    done = replay(folder, "list")
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r"\d+\.\d\d s", "0.00 s", done.stdout)
    for expected in (
        "\n> Add bread to my list.\n\nTurn 1: m, 0 tokens in, 0 out, 0.00 s\nI look. \n"
        "* read notes.txt\n* bash cat notes.txt | wc -l\n",
        "\nTurn 2: m, 0 tokens in, 0 out, 0.00 s\n* write notes.txt milk",
        "Overwrote notes.txt: 11 bytes.",
        "The run ended: completed\n\n> Delete it.\n\nTurn 4: ",
        "Denied: this call was not allowed",
    ):
        assert expected in text


def test_control_characters_are_escaped(tmp_path, capsys):
    evil = "\x1b]0;evil\x07\x1b[2J\u202e"
    reply = AssistantMessage(evil, [ToolCall("a", evil, json.dumps({evil: evil}))], model=evil)
    log = UserMessage(evil), reply, ToolMessage("a", evil, evil)
    write(tmp_path / "s.jsonl", *log)
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    output = capsys.readouterr().out
    assert "\\x1b]0;evil\\x07" in output
    assert not set("\x1b\x07\u202e") & set(output)


def test_prompts_of_the_user_are_distinguished_from_notes_of_the_program(tmp_path, capsys):
    note = UserMessage("The user interrupted you here.", "note")
    stopped = AssistantMessage("I beg", stop_reason="interrupted")
    log = RunStart(), UserMessage("go"), stopped, note, RunEnd("interrupted")
    write(tmp_path / "s.jsonl", *log)
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    output = capsys.readouterr().out
    assert "\n> go\n" in output
    assert "\nTurn 1: interrupted, " in output
    assert "\n(The user interrupted you here.)\n" in output


def test_undone_turns_and_failed_requests_have_the_same_numbers_as_on_the_page(tmp_path, capsys):
    look = ToolCall("a", "look")
    first, second = AssistantMessage("One."), AssistantMessage("", [look])
    begin = RunStart(), UserMessage("go"), first, RunEnd("completed")
    log = [*begin, RunStart(), UserMessage("on"), second, look.answer("no eyes", is_error=True)]
    log += [SideRequest(purpose="failed attempt", text="I was about"), RunEnd("error", "503: busy")]
    log += [Reset(), *begin[1:3], RunStart(), UserMessage("on"), AssistantMessage("Two.")]
    write(tmp_path / "s.jsonl", *log, RunEnd("completed"), Reset(), begin[1])
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    output = capsys.readouterr().out
    parts = ("> go", "Turn 1: ", "> on", "Turn 2: ", "(failed attempt) I was about")
    parts += ("Turn 3 failed.", "error 503: busy", "Taken back: Turn 2, Turn 3", "> on", "Turn 4: ")
    at = -1
    for part in (*parts, "Taken back: Turn 1, Turn 4"):
        at = output.index(part, at + 1)
    assert output.count("> go") == 1


def test_a_tool_error_that_ends_the_run_is_not_a_failed_request(tmp_path, capsys):
    @tool
    async def fail() -> str:
        """Fail."""
        raise OSError("the disk is full")

    agent = Agent(llm=ScriptedModel(call("fail")), tools=[fail], on_tool_error="raise")
    with pytest.raises(OSError, match="disk"):
        agent.run_sync("go")
    write(tmp_path / "s.jsonl", *agent.log)
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    output = capsys.readouterr().out
    assert "failed." not in output
    assert "The run ended: error OSError: the disk is full" in output


def test_the_turns_of_a_sub_agent_precede_the_result_of_its_call(tmp_path, capsys):
    @tool
    async def page(n: int) -> str:
        """Look at a page."""
        raise ToolError(f"page {n} is missing")

    inner = Agent(llm=ScriptedModel(call("page", n=1), "It is a book."), tools=[page])
    outer = ScriptedModel(call("research", prompt="What is it?"), "A book.")
    agent = Agent(llm=outer, tools=[as_tool(inner, "research", "Looks something up")])
    agent.run_sync("Tell me.")
    unfinished = takewhile(lambda record: not isinstance(record, ToolMessage), agent.log)
    for log in (agent.log, unfinished):
        write(tmp_path / "s.jsonl", *log)
        assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    output = re.sub(r"\d+\.\d\d s", "0.00 s", capsys.readouterr().out)
    about = "scripted, 0 tokens in, 0 out, 0.00 s"
    assert (
        f"\nTurn 1: {about}\n* research What is it?\n\n> What is it?\n\nresearch 1: {about}\n"
        f"* page 1\n  page 1 is missing\n\nresearch 2: {about}\nIt is a book.\n"
        f"The run ended: completed\n  It is a book.\n\nTurn 2: {about}\nA book.\n"
    ) in output
    assert output.count("\nresearch 1: ") == 2


def test_nested_calls_appear_below_the_calling_tool(tmp_path, capsys):
    @tool
    async def page(n: int) -> str:
        """Look at a page."""
        raise ToolError(f"page {n} is missing")

    @tool
    async def book(agent: Annotated[Loop, Depends(current_agent)]) -> str:
        """Look at the book."""
        with suppress(ToolError):
            await agent.call(page, n=1)
        return await agent.call("research", prompt="What is it?")

    research = as_tool(Agent(llm=ScriptedModel("A book.")), "research", "Looks something up")
    model = ScriptedModel(call("book"), "Done.")
    agent = Agent(llm=model, tools=[page, book, research])
    agent.run_sync("Read it.")
    write(tmp_path / "s.jsonl", *agent.log)
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    output = capsys.readouterr().out
    calls = "* book \n  * page 1\n  page 1 is missing\n  * research What is it?\n\n> What is it?\n"
    assert calls in output
    assert "A book.\nThe run ended: completed\n  A book.\n  A book.\n\nTurn 2: " in output


def test_a_failed_run_shows_its_error(tmp_path, capsys):
    error = 'BadRequest: 400: {"error": {"message": "No such model."}}'
    log = RunStart(), UserMessage("go"), RunEnd("error", error)
    write(tmp_path / "s.jsonl", *log)
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    output = capsys.readouterr().out
    assert (
        "\n> go\n\nTurn 1 failed.\nThe run ended: error BadRequest: 400: No such model.\n" in output
    )
