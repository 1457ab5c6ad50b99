"""The lessons run offline, print what they teach, and are each the previous plus one idea."""

from __future__ import annotations

import ast
import difflib
import json
import os
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "examples" / "lessons").glob("[0-9]*.py"))
BY_HAND, WITH_LIBRARY = LESSONS[:4], LESSONS[4:]
ADDED, REMOVED = 25, 12  # lines from one lesson to the next, docstrings and blank lines included

POINTS = {
    "01": [
        '{"role": "user", "content": "There are 12 eggs. Are they enough for 20 pancakes?"}',
        '{"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs, and there are 12."}',
        "Notice: the program had to guess that the model would need the eggs.",
    ],
    "02": [
        '{"role": "tool", "tool_call_id": "call_1", "content": "12"}',
        "Notice: the result stands behind its call and carries the id of the call.",
        "Notice: the loop ends when the model asks for nothing more.",
    ],
    "03": [
        '"content": "8 pancakes take 400 flour and 4 eggs"}',
        '{"role": "tool", "tool_call_id": "call_2", "content": "KeyError: \'egg\'"}',
        '{"role": "tool", "tool_call_id": "call_3", "content": "12"}',
        "Notice: the model read KeyError: 'egg' and asked again for 'eggs'.",
        "Notice: both calls of one reply are answered, in their order.",
    ],
    "04": [
        '{"role": "user", "content": "You have reached the limit of turns',
        '"content": "20 pancakes take 10 eggs; how many there are I do not know."}',
        "Notice: a `for` instead of a `while`. An agent is a for-loop.",
        "Notice: the last reply says what is known and what is missing.",
    ],
    "05": [
        "Notice: 10 messages, equal to the 10 of lesson 4.",
        "Notice: the result says why the run ended: max_iterations.",
    ],
    "06": [
        '"description": "Its name, in the plural."',
        "the model is told: 'items': did you mean 'item'?",
        "the model is told: unit: Input should be 'pieces' or 'grams' (got 'pounds')",
        "the model is told: 12 pieces",
        "Notice: three calls, and the function ran once.",
    ],
    "07": [
        'the model may fill in: {"item": {"type": "string"}}',
        "the model is told: 'pantry': there is no such argument",
        "There are 12 eggs.",
        "There are 0 eggs.",
        "Notice: the same tool looked into two pantries.",
    ],
    "08": [
        "stock is about to run with {'item': 'eggs'}",
        "stock runs",
        "stock returned 12",
        "a piece of text: 'There '",
        "the answer: There are 12 eggs.",
        "it holds 4 messages.",
    ],
}
OFFLINE = """
import runpy, sys

def refuse(event, args):
    local = event == "socket.connect" and args[1][0] in ("127.0.0.1", "::1")  # asyncio's own pair
    if event in ("socket.getaddrinfo", "socket.connect", "socket.sendto") and not local:
        raise SystemExit(f"{event} {args}")

sys.addaudithook(refuse)
for lesson in sys.argv[1:]:
    runpy.run_path(lesson, run_name="__main__")
"""

each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)


def python(*arguments: str) -> str:
    """What a python with these arguments prints; it has to exit 0 and write no errors."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        encoding="utf-8",
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@cache
def output(number: str) -> str:
    (lesson,) = (path for path in LESSONS if path.name.startswith(number))
    return python(str(lesson))


def transcript(number: str) -> list[dict[str, Any]]:
    """The messages that a lesson prints, one a line."""
    return [json.loads(line) for line in output(number).splitlines() if line.startswith("{")]


def roles(number: str) -> list[str]:
    return [message["role"] for message in transcript(number)]


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


def test_there_are_eight_lessons_in_order() -> None:
    assert [path.name[:2] for path in LESSONS] == sorted(POINTS)
    assert len(LESSONS) == 8


@each_lesson
def test_a_lesson_prints_its_point(lesson: Path) -> None:
    number, at = lesson.name[:2], 0
    for sentence in POINTS[number]:
        at = output(number).find(sentence, at)
        assert at >= 0, f"not there, or not in this order: {sentence}"


@each_lesson
def test_a_lesson_begins_with_its_problem_and_ends_with_something_to_try(lesson: Path) -> None:
    text = docstring(lesson)
    assert text.startswith("Problem: ")
    assert text.split("\n\n")[-1].startswith("Try: ")
    assert text.count("Try: ") == 1


@each_lesson
def test_a_lesson_is_one_page_of_100_columns(lesson: Path) -> None:
    lines = lesson.read_text(encoding="utf-8").splitlines()
    assert 30 <= len(lines) <= 75
    assert max(map(len, lines)) <= 100


def test_no_lesson_reaches_for_the_network() -> None:
    python("-c", OFFLINE, *map(str, LESSONS))


def test_the_first_four_need_the_standard_library_only() -> None:
    for lesson in BY_HAND:
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


def test_one_call_is_one_question_and_one_reply() -> None:
    assert roles("01") == ["user", "assistant"]


def test_the_loop_puts_the_result_behind_its_call() -> None:
    _, asks, result, answer = transcript("02")
    assert asks["tool_calls"][0]["id"] == result["tool_call_id"]
    assert "tool_calls" not in answer


def test_several_tools_are_answered_in_the_order_of_their_calls() -> None:
    assert roles("03") == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    asks, first, second = transcript("03")[1:4]
    ids = [call["id"] for call in asks["tool_calls"]]
    assert ids == [first["tool_call_id"], second["tool_call_id"]]


def test_the_limit_leaves_the_model_one_reply_without_calls() -> None:
    assert roles("04").count("assistant") == 3 + 1
    assert "tool_calls" not in transcript("04")[-1]


def test_a_conversation_below_the_limit_does_not_meet_it() -> None:
    third, fourth = (runpy.run_path(str(path)) for path in LESSONS[2:4])
    fourth["SCRIPT"][:] = third["SCRIPT"]
    assert fourth["run"]("Enough?") == third["run"]("Enough?")


def test_the_library_holds_the_conversation_of_lesson_4() -> None:
    assert transcript("05") == transcript("04")


def test_wrong_arguments_never_reach_the_function() -> None:
    assert output("06").count("the model asks:") == 3
    assert output("06").count("stock runs") == 1
    schema, _ = json.JSONDecoder().raw_decode(output("06"))
    assert schema["required"] == ["item"]
    assert schema["properties"]["unit"]["enum"] == ["pieces", "grams"]


def test_the_model_cannot_bring_a_pantry_of_its_own() -> None:
    assert output("07").count("'pantry': there is no such argument") == 2
    assert "1000" not in output("07")


def test_leaving_the_stream_at_a_call_prevents_the_tool(tmp_path: Path) -> None:
    lesson = LESSONS[7].read_text(encoding="utf-8")
    line = '                print(f"{event.tool} is about to run with {event.args}")\n'
    assert line in lesson
    tried = tmp_path / "tried.py"
    tried.write_text(lesson.replace(line, line + "                break\n"), encoding="utf-8")
    assert "about to run" in python(str(tried))
    assert "stock runs" not in python(str(tried))
