"""The lessons and the solutions of their exercises run offline and print what they teach."""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "lessons"
LESSONS = sorted(FOLDER.glob("[0-9]*.py"))
SOLUTIONS = sorted(FOLDER.glob("solutions/*.py"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")
BY_HAND, WITH_LIBRARY, COPIED = LESSONS[:4], LESSONS[4:15], LESSONS[15:]
ADDED, REMOVED = 25, 12  # lines from one lesson to the next, docstrings and blank lines included

POINTS = {
    "01": [
        '{"role": "user", "content": "There are 12 eggs. Are they enough for 20 pancakes?"}',
        '{"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs, and there are 12."}',
    ],
    "02": [
        '{"role": "tool", "tool_call_id": "call_1", "content": "12"}',
        "Notice: the loop ends when the model asks for nothing more.",
    ],
    "03": [
        '"content": "8 pancakes take 400 flour and 4 eggs"}',
        '{"role": "tool", "tool_call_id": "call_2", "content": "KeyError: \'egg\'"}',
        '{"role": "tool", "tool_call_id": "call_3", "content": "12"}',
    ],
    "04": [
        '{"role": "user", "content": "You have reached the limit of turns',
        '"content": "20 pancakes take 10 eggs; how many there are I do not know."}',
    ],
    "05": [
        "Notice: 10 messages, equal to the 10 of lesson 4.",
    ],
    "06": [
        '"description": "Its name, in the plural."',
        "the model is told: 'items': did you mean 'item'?",
        "the model is told: unit: Input should be 'pieces' or 'grams' (got 'pounds')",
        "the model is told: 12 pieces",
    ],
    "07": [
        'the model may fill in: {"item": {"type": "string"}}',
        "the model is told: 'pantry': there is no such argument",
        "There are 12 eggs.",
        "There are 0 eggs.",
    ],
    "08": [
        "stock is about to run with {'item': 'eggs'}",
        "stock runs",
        "stock returned 12",
        "a piece of text: 'There '",
        "the answer: There are 12 eggs.",
        "it holds 4 messages.",
    ],
    "09": [
        "-- Loop, offering stock, recipe\n",
        "The run ended (completed): There are 12 eggs. Next I will look up the recipe.",
        "-- DoneTool, offering stock, recipe, done\n",
        "Next I will look up the recipe.\n   the library: You have not finished",
        "The run ended (done): Yes: 20 pancakes take 10 eggs, and there are 12.",
    ],
    "10": [
        "all is sent: 108,450 tokens are sent, 0 of them billed in full again.",
        "hidden each turn: 32,010 tokens are sent, 15,564 of them billed in full again.",
        "hidden when it pays: 73,170 tokens are sent, 1,215 of them billed in full again.",
    ],
    "11": [
        "-- dropped\n",
        "tool: 8 pancakes take 4 eggs.",
        "tool: 6 waffles take 2 eggs.",
        "-- before",
        "user: Your context window is nearly full.",
        "-- after",
        "user: Which takes fewest eggs: a pancake, a waffle or an omelette?",
        "user: The conversation so far, summarized: 8 pancakes take 4 eggs, 6 waffles 2.",
        "tool: 1 omelette takes 3 eggs.",
        "A waffle: 6 of them take 2 eggs.",
    ],
    "12": [
        "The test has passed.",
        "I have 6.",
        "the model is told: Refused: take half of what there is at most.",
        "the model is told: 6 eggs are left",
        "the model is told: Refused",
    ],
    "13": [
        "stock runs",
        "user, assistant, tool_start, tool, assistant, run_end\n",
        "a new agent, with 5 messages: Not run: the run ended before this call started.",
        "recipe runs",
        "Yes: 20 pancakes take 10 eggs, and there are 12.",
        "run_start, tool_start, tool, assistant, run_end\n",
    ],
    "14": [
        'scripted calls recipe {"dish":"pancakes"}',
        "No: 20 pancakes take 10 eggs and 1000 g flour; there are 12 eggs, but 900 g flour.",
    ],
    "15": [
        "AssertionError",
        "> edit check.py == 10 == 5\nMay I edit?",
        "y/n: n\n  Denied: this edit was not approved",
        "> edit pancakes.py // 4 // 2\nMay I edit?",
        "y/n: y\n  Edited pancakes.py: 1 replaced.",
        "the check passes",
        "> bash git push --force\n  Not run: allowed are only",
    ],
    "16": [
        "$ agentloop bundle agent scripted -o my_agent.py\nmy_agent.py has",
        "and the loop is in there 1 time.",
        "the loop goes round\nthe loop goes round\nThere are 12 eggs.",
        "agentloop is imported: False",
        "loop.py                 changed by you\nNotice",
    ],
}
SOLVED = {  # what a solution prints, and its lesson does not
    "01": ['{"role": "user", "content": "And how many eggs are left?"}', "Then 2 eggs are left."],
    "02": ['"content": "12"}', '"content": "900"}'],
    "03": ['"call_2", "content": "LookupError: there is no egg; there are flour, eggs"}'],
    "04": [
        "limit 3: max_iterations, after 10 messages",
        "limit 4: completed, after 9 messages",
    ],
    "05": ["the model's ids: 1 1\n", "they are kept as: 1 1_2\n", "their results: 12 900\n"],
    "06": [
        '"type": "array"',
        "the model is told: items: Input should be a valid array (got 'eggs')",
        "the model is told: 12 pieces of eggs, 900 pieces of flour",
    ],
    "07": ["the pantry is opened\nstock runs\nthe pantry is closed\n" * 2, "KeyError: 'milk'"],
    "08": [
        "stock is about to run, and we leave\n",
        "Not run: the run ended before this call started.",
        "stock runs\nthe answer: There are 12 eggs.",
    ],
    "09": ["the value: Verdict(enough=True, left=2)", 'the text: {"enough":true,"left":2}'],
    "10": ["all is sent: 27,403", "hidden each turn: 34,221", "hidden when it pays: 25,485"],
    "11": ["A waffle", "requests to the cheap model: 1\n", "requests to the other: 4\n"],
    "12": [
        "The test has passed.",
        "AssistantMessage: A dozen.\nUserMessage: Answer with one number, in digits.\n",
        "AssistantMessage: Twelve.\nUserMessage: Answer with one number, in digits.\n",
        "AssistantMessage: 12\n",
    ],
    "13": [
        "eggs.jsonl holds: How many eggs are there?\n",
        "pancakes.jsonl holds: How many eggs are there? For how many pancakes?\n",
    ],
    "14": [
        "the second says: There are 12 eggs.",
        "requests to the first: 1\n",
        "requests to the second: 2\n",
    ],
    "15": ["-assert eggs(20) == 10\n+", "-    return pancakes // 4\n+    return pancakes // 2\n"],
    "16": ["0 messages so far", "2 messages so far", "sections 0 are not as shipped"],
}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
OFFLINE = """
import runpy, sys

def refuse(event, args):
    local = event == "socket.connect" and args[1][0] in ("127.0.0.1", "::1")  # asyncio's own pair
    if event in ("socket.getaddrinfo", "socket.connect", "socket.sendto") and not local:
        raise SystemExit(f"{event} {args}")

sys.addaudithook(refuse)
for program in sys.argv[1:]:
    print(f"== {program}", flush=True)
    sys.argv[0] = program
    runpy.run_path(program, run_name="__main__")
"""

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
each_solution = pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda path: path.stem)


def python(*arguments: str) -> str:
    """What a python with these arguments prints; it has to exit 0 and write no errors.

    It knows of no key, whatever the environment holds, so that no real model is asked.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={
            **{name: value for name, value in os.environ.items() if name not in KEYS},
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        capture_output=True,
        encoding="utf-8",
        timeout=200,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@cache
def all_printed() -> dict[str, str]:
    """All programs in one process, which has no network."""
    told = python("-c", OFFLINE, *map(str, [*LESSONS, *SOLUTIONS]))
    _, *parts = re.split(r"^== (.*)\n", told, flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def printed(program: Path) -> str:
    return all_printed()[str(program)]


def output(number: str) -> str:
    (lesson,) = (path for path in LESSONS if path.name.startswith(number))
    return printed(lesson)


def missing(sentences: list[str], text: str) -> str | None:
    """The first sentence that a text does not have, or not in this order."""
    at = 0
    for sentence in sentences:
        if (at := text.find(sentence, at)) < 0:
            return sentence
        at += len(sentence)
    return None


def changed(lesson: Path, folder: Path, line: str, instead: str) -> str:
    """What a lesson prints with another line, in a file of its own."""
    text = lesson.read_text(encoding="utf-8")
    assert text.count(line) == 1
    tried = folder / lesson.name
    tried.write_text(text.replace(line, instead), encoding="utf-8")
    return python(str(tried))


def transcript(number: str) -> list[dict[str, Any]]:
    """The messages that a lesson prints, one a line."""
    return [json.loads(line) for line in output(number).splitlines() if line.startswith("{")]


def docstring(lesson: Path) -> str:
    return ast.get_docstring(ast.parse(lesson.read_text(encoding="utf-8"))) or ""


def imports(lesson: Path) -> set[str]:
    """The top-level packages that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(lesson.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


@each_lesson
def test_a_lesson_prints_its_point(lesson: Path) -> None:
    assert missing(POINTS[lesson.name[:2]], printed(lesson)) is None


@each_lesson
def test_a_lesson_is_one_page_with_a_problem_and_something_to_try(lesson: Path) -> None:
    text = docstring(lesson)
    assert text.startswith("Problem: ")
    assert text.split("\n\n")[-1].startswith("Try: ")
    lines = lesson.read_text(encoding="utf-8").splitlines()
    assert 30 <= len(lines) <= 75
    assert max(map(len, lines)) <= 100


def test_the_first_four_and_the_last_import_the_standard_library_only() -> None:
    for lesson in [*BY_HAND, *COPIED]:
        assert imports(lesson) <= set(sys.stdlib_module_names), lesson.name
    for lesson in WITH_LIBRARY:
        assert "agentloop" in imports(lesson), lesson.name


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_lesson_by_hand_is_the_previous_plus_a_few_lines(at: int) -> None:
    before, after = (
        path.read_text(encoding="utf-8").splitlines() for path in LESSONS[at - 1 : at + 1]
    )
    changes = [line[:2] for line in difflib.ndiff(before, after)]
    assert changes.count("+ ") <= ADDED
    assert changes.count("- ") <= REMOVED


def test_the_library_holds_the_conversation_of_lesson_4() -> None:
    assert transcript("05") == transcript("04")


def test_leaving_the_stream_at_a_call_prevents_the_tool(tmp_path: Path) -> None:
    line = '                print(f"{event.tool} is about to run with {event.args}")\n'
    told = changed(LESSONS[7], tmp_path, line, line + "                break\n")
    assert "about to run" in told
    assert "stock runs" not in told


def test_the_mixin_is_short_and_its_test_can_fail(tmp_path: Path) -> None:
    lines = LESSONS[11].read_text(encoding="utf-8").splitlines(keepends=True)
    begin, end = (lines.index(f"class {line}:\n") for line in ("Guard(Loop)", "Cook(Guard, Agent)"))
    assert len([line for line in lines[begin:end] if line.strip()]) <= 15
    (check,) = (at for at in range(begin, end) if lines[at].lstrip().startswith("if "))
    without = tmp_path / "without.py"
    without.write_text("".join(lines[:check] + lines[check + 2 :]), encoding="utf-8")
    with pytest.raises(AssertionError):
        runpy.run_path(str(without))["test_a_refused_call_does_not_run_and_the_model_reads_why"]()


def test_what_ran_before_the_cut_does_not_run_again() -> None:
    assert output("13").count("stock runs") == output("13").count("recipe runs") == 1
    first, second = (line for line in output("13").splitlines() if line.startswith("the file: "))
    assert second.startswith(first)


def test_the_model_is_real_where_there_is_a_key_and_never_in_these_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lesson = runpy.run_path(str(LESSONS[13]))
    for key in KEYS:
        monkeypatch.setenv(key, "not-a-key")
        provider, name = lesson["MODELS"][key]
        model = lesson["choose"]({key: "not-a-key"})
        assert (type(model), model.model) == (provider, name)
    assert type(lesson["choose"]({"OPENAI_API_KEY": ""})).__name__ == "ScriptedModel"
    assert python(str(LESSONS[13])) == output("14")


def test_nothing_is_written_that_the_person_did_not_allow(tmp_path: Path) -> None:
    assert output("15").count("May I") == output("15").count("> edit") == 2
    assert output("15").count("Edited") == 1
    line, denies = 'PERSON = iter(["n", "y"])', 'PERSON = iter(["n", "n"])'
    told = changed(LESSONS[14], tmp_path, line, denies)
    assert "Edited" not in told
    assert "  the check passes\n" not in told


@each_solution
def test_a_solution_prints_what_its_exercise_asks_for_and_the_lesson_does_not(
    solution: Path,
) -> None:
    asked = SOLVED[solution.name[:2]]
    assert missing(asked, printed(solution)) is None
    assert missing(asked, printed(FOLDER / solution.name)) is not None


@each_solution
def test_a_solution_is_a_small_program_and_says_what_its_exercise_is(solution: Path) -> None:
    lines = solution.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 75
    assert max(map(len, lines)) <= 100
    exercise = " ".join(docstring(solution).split()).removeprefix("Exercise: ").rstrip(".")
    number = int(solution.name[:2])
    asked = re.split(r"^\d+\. ", README.partition("## Exercises")[2], flags=re.M)[number]
    assert " ".join(asked.split()).casefold().startswith(exercise.casefold())


def test_there_is_an_hour_of_lessons_and_an_exercise_for_each() -> None:
    rows = re.findall(r"^\| (\d+) \| \[(\w+)\]\((\w+\.py)\) \| .+ \|$", README, flags=re.M)
    assert sum(int(minutes) for minutes, _, _ in rows) == 60
    assert [file for _, _, file in rows] == [lesson.name for lesson in LESSONS]
    assert all(f"{name}.py" == file for _, name, file in rows)
    assert [solution.name for solution in SOLUTIONS] == [lesson.name for lesson in LESSONS]
    exercises = README.partition("## Exercises")[2]
    numbers = re.findall(r"^(\d+)\. ", exercises, flags=re.M)
    assert numbers == [str(number) for number in range(1, 17)]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (FOLDER / target).exists(), target
