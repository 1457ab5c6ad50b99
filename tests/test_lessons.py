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
BY_HAND = [LESSONS[0], *LESSONS[2:5]]  # without 1b, which is aside
STANDARD = {"01", "01b", "02", "03", "04", "16"}  # import nothing but the standard library
CHECK = runpy.run_path(str(FOLDER / "check.py"))
ADDED, REMOVED = 25, 12  # lines from one lesson to the next, docstrings and blank lines included

POINTS = {
    "01": [
        '{"role": "user", "content": "There are 12 eggs. Are they enough for 20 pancakes?"}',
        '{"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs, and there are 12."}',
    ],
    "01b": [
        "> POST .../chat/completions\n> Content-Type: application/json\n",
        '> {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "There are 12',
        '< 200 OK\n<\n< {"id": "chatcmpl-1", "choices": [{"message": {"role": "assistant"',
        "\nYes: 20 pancakes take 10 eggs.\n",
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
        "Notice: 10 messages, those of lesson 4;",
        "ended: max_iterations.",
    ],
    "06": [
        '"description": "Its name, in the plural."',
        "the model is told: 'items': there is no such argument",
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
        "all is sent                    hidden each turn               hidden when it pays\n",
        "--------++                     -##++                          --------++\n",
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
        "the program ends: the network is gone",
        "user, assistant, tool_start, tool, run_end\n",
        "a new agent, with 3 messages",
        "recipe runs",
        "Yes: 20 pancakes take 10 eggs, and there are 12.",
        "run_end, run_start, assistant, tool_start, tool, assistant, run_end\n",
    ],
    "14": [
        "!!  NO MODEL IS ASKED: what follows is a script",
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
        "$ cp nano.py my_agent.py; python my_program.py\n",
        "            for _ in range(self.max_iterations):\n",
        "There are 12 eggs.\nagentloop is imported: False\n",
        "$ agentloop bundle agent session scripted -o more.py\nmore.py has",
    ],
    "17": [
        "-- no system prompt\n   Eat it: eggs keep for a month.",
        "-- the rules\n   Somebody has to smell it.\n",
        "[0, 2, 4]; 0 tokens are billed again",
        "a system message in the log: False",
        "-- the rules, and the time\n",
        "[0, 0, 0]; 47 tokens are billed again",
    ],
    "18": [
        "no defence: to mallory@example.net: The code of the till is 4711.",
        "a sentence in the system prompt: to mallory",
        "a person is asked: nothing is sent\n   the model is told: Denied: ",
        "did not run. Who is mallory?",
        "a tool without an address: to the owner: The code of the till is 4711.",
    ],
    "19": [
        "6 of 10: Answer yes or no.\n   wrong: Are the eggs enough for 28 pancakes? Yes.",
        "10 of 10: Look up what is there",
        "recorded: 10\nreplayed: 10\n",
        "replayed with the other prompt: request 1 differs",
    ],
}
KEYS = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY")
OFFLINE = """
import runpy, sys

def refuse(event, args):
    if event in ("socket.getaddrinfo", "socket.connect", "socket.sendto"):
        host = args[0] if event == "socket.getaddrinfo" else args[1][0]
        if host not in ("127.0.0.1", "::1"):  # asyncio's own pair, and lesson 1b's server
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


def number_of(lesson: Path) -> str:
    return lesson.name.partition("_")[0]


def the(number: str) -> Path:
    """The lesson of this number."""
    (lesson,) = (path for path in LESSONS if number_of(path) == number)
    return lesson


def output(number: str) -> str:
    return printed(the(number))


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
    assert missing(POINTS[number_of(lesson)], printed(lesson)) is None


@each_lesson
def test_a_lesson_is_one_page_with_a_problem_and_something_to_try(lesson: Path) -> None:
    text = docstring(lesson)
    assert text.startswith("Problem: ")
    assert text.split("\n\n")[-1].startswith("Try: ")
    lines = lesson.read_text(encoding="utf-8").splitlines()
    assert 30 <= len(lines) <= 75
    assert max(map(len, lines)) <= 100


def test_the_lessons_by_hand_and_that_on_copying_import_the_standard_library_only() -> None:
    for lesson in LESSONS:
        if number_of(lesson) in STANDARD:
            assert imports(lesson) <= set(sys.stdlib_module_names), lesson.name
        else:
            assert "agentloop" in imports(lesson), lesson.name


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_lesson_by_hand_is_the_previous_plus_a_few_lines(at: int) -> None:
    before, after = (
        path.read_text(encoding="utf-8").splitlines() for path in BY_HAND[at - 1 : at + 1]
    )
    changes = [line[:2] for line in difflib.ndiff(before, after)]
    assert changes.count("+ ") <= ADDED
    assert changes.count("- ") <= REMOVED


def test_the_library_holds_the_conversation_of_lesson_4() -> None:
    def anonymous(number: str) -> list[dict[str, Any]]:
        """A transcript whose ids are numbers, and whose arguments are objects."""
        messages, ids = transcript(number), dict[str, int]()
        for message in messages:
            for asked in message.get("tool_calls", ()):
                asked["id"] = ids.setdefault(asked["id"], len(ids))
                asked["function"]["arguments"] = json.loads(asked["function"]["arguments"])
            if "tool_call_id" in message:
                message["tool_call_id"] = ids[message["tool_call_id"]]
        return messages

    assert anonymous("05") == anonymous("04")


def test_the_path_ends_at_nano_which_plays_lesson_6(tmp_path: Path) -> None:
    text = the("06").read_text(encoding="utf-8")
    text = re.sub(r"from agentloop[.\w]* import", "from nano import", text)
    (tmp_path / "nano.py").write_bytes((FOLDER.parent / "nano.py").read_bytes())
    (tmp_path / "lesson.py").write_text(text, encoding="utf-8")
    told = python(str(tmp_path / "lesson.py"))
    assert told.count("stock runs with 'eggs'") == told.count("the model is told: 12 pieces") == 1
    assert "did you mean" not in told  # which the library says


async def test_the_notebook_is_the_lessons_1_to_6_and_its_cells_print_what_they_print(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    make = runpy.run_path(str(FOLDER / "make_notebook.py"))
    written = make["NOTEBOOK"].read_text(encoding="utf-8")
    assert written == await make["notebook"](), "run examples/lessons/make_notebook.py"
    cells = json.loads(written)["cells"]
    shown = ["".join(cell["outputs"][0]["text"]) for cell in cells if cell.get("outputs")]
    assert shown == [printed(lesson) for lesson in LESSONS[:7]]


def test_leaving_the_stream_at_a_call_prevents_the_tool(tmp_path: Path) -> None:
    line = '                print(f"{event.tool} is about to run with {event.args}")\n'
    told = changed(the("08"), tmp_path, line, line + "                break\n")
    assert "about to run" in told
    assert "stock runs" not in told


def test_the_mixin_is_short_and_its_test_can_fail(tmp_path: Path) -> None:
    lines = the("12").read_text(encoding="utf-8").splitlines(keepends=True)
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
    lesson = runpy.run_path(str(the("14")))
    assert sorted(lesson["MODELS"]) == sorted(KEYS)
    for key in KEYS:
        monkeypatch.setenv(key, "http://127.0.0.1:1/v1" if key.endswith("URL") else "not-a-key")
        provider, name = lesson["MODELS"][key]
        model = lesson["choose"]({key: "set"})
        assert (type(model).__name__, model.model) == (provider, name)
    own = lesson["choose"]({"OPENAI_BASE_URL": "set", "OPENAI_MODEL": "qwen3"})
    assert (own.model, own.base_url) == ("qwen3", "http://127.0.0.1:1/v1")
    assert type(lesson["choose"]({"OPENAI_API_KEY": ""})).__name__ == "ScriptedModel"
    assert python(str(the("14"))) == output("14")


def test_nothing_is_written_that_the_person_did_not_allow(tmp_path: Path) -> None:
    assert output("15").count("May I") == output("15").count("> edit") == 2
    assert output("15").count("Edited") == 1
    line, denies = 'PERSON = iter(["n", "y"])', 'PERSON = iter(["n", "n"])'
    told = changed(the("15"), tmp_path, line, denies)
    assert "Edited" not in told
    assert "  the check passes\n" not in told


@each_solution
def test_check_takes_the_solution_and_says_of_the_lesson_what_is_missing(solution: Path) -> None:
    number = number_of(solution).lstrip("0")
    assert CHECK["lacking"](number, printed(solution)) is None
    advice = CHECK["lacking"](number, printed(FOLDER / solution.name))
    assert re.match(r"[a-z`10].{20,}[^.]$", advice), advice


def test_check_runs_a_file_and_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    def check(number: str, file: Path | None = None) -> tuple[int, str]:
        command = [sys.executable, FOLDER / "check.py", number, *([file] if file else [])]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=200)
        return done.returncode, done.stdout + done.stderr

    broken = tmp_path / "broken.py"
    broken.write_text("print(1 / 0)\n", encoding="utf-8")
    for result, status, sentence in (
        (check("3", FOLDER / "solutions" / "03_several_tools.py"), 0, "Exercise 3 is solved: "),
        (check("03"), 1, "Exercise 3 is not solved yet: let `stock` raise a LookupError that"),
        (
            check("3", broken),
            1,
            "it ends with an error in line 1: ZeroDivisionError: division by zero.",
        ),
        (check("20"), 1, "which exercise, and of which file? 1, 1b, 2, "),
        (check("3", tmp_path / "missing.py"), 1, "which exercise, and of which file?"),
    ):
        assert (result[0], sentence in result[1]) == (status, True), result


@each_solution
def test_a_solution_is_a_small_program_and_says_what_its_exercise_is(solution: Path) -> None:
    lines = solution.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 75
    assert max(map(len, lines)) <= 100
    exercise = " ".join(docstring(solution).split()).removeprefix("Exercise: ").rstrip(".")
    number = number_of(solution).lstrip("0")
    exercises = README.partition("## Exercises")[2]
    (asked,) = re.findall(rf"(?:^{number}\. |also {number}: )((?:.+\n)+)", exercises, flags=re.M)
    assert " ".join(asked.split()).casefold().startswith(exercise.casefold())


def test_the_class_is_ninety_minutes_without_a_gap_over_lessons_that_there_are() -> None:
    text = (FOLDER / "TEACHING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| .+ \| ([\d, b]*) ?\|$", text, flags=re.M)
    ends = [int(end) for _, end, _ in rows]
    assert [int(begin) for begin, _, _ in rows] == [0, *ends[:-1]]
    assert ends[-1] == 90
    taught = [number for *_, each in rows for number in re.findall(r"\w+", each)]
    assert {f"{number:0>{3 if 'b' in number else 2}}" for number in taught} < {
        number_of(lesson) for lesson in LESSONS
    }
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (FOLDER / target).exists(), target


def test_there_is_an_hour_and_a_quarter_of_lessons_and_an_exercise_for_each() -> None:
    rows = re.findall(r"^\| (\d+) \| \[(\w+)\]\((\w+\.py)\) \| .+ \|$", README, flags=re.M)
    assert sum(int(minutes) for minutes, _, _ in rows) == 75
    assert [file for _, _, file in rows] == [lesson.name for lesson in LESSONS]
    assert all(f"{name}.py" == file for _, name, file in rows)
    assert [solution.name for solution in SOLUTIONS] == [lesson.name for lesson in LESSONS]
    exercises = README.partition("## Exercises")[2]
    numbers = re.findall(r"^(\d+)\. ", exercises, flags=re.M)
    assert numbers == [str(number) for number in range(1, 20)]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (FOLDER / target).exists(), target
