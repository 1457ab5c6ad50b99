"""The rendering of incomplete Markdown: complete blocks, and the last lines in the live area."""

import pytest

pytest.importorskip("rich", reason="the chat renders with rich")
from agentloop_chat.mcp_questions import question_text
from agentloop_chat.rendering import (
    WholeMarkdown,
    all_of,
    changed_lines,
    last_lines,
    split_blocks,
)
from rich.console import Console

from agentloop.cli.terminal import safe


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("one\n\ntw", "one\n\n"),
        ("one\n\n", ""),
        ("one\ntwo", ""),
        ("```\na\n\nb", ""),
        ("```\na\n\nb\n```\n\nc", "```\na\n\nb\n```\n\n"),
        ("x\n\n```\na\n\nb", "x\n\n"),
        ("```\na\n```\n\nb\n\n```\nc\n\nd", "```\na\n```\n\nb\n\n"),
    ],
)
def test_a_block_is_complete_when_the_next_starts_and_code_when_it_is_closed(text, complete):
    assert split_blocks(text) == (complete, text[len(complete) :])


def test_a_long_text_is_rendered_only_from_its_last_lines():
    lines = [f"- item {number}" for number in range(1_000)]
    assert last_lines("\n".join(lines), 40) == "\n".join(lines[-40:])
    assert last_lines("\n".join(lines[:40]), 40) == "\n".join(lines[:40])


def test_the_last_lines_of_a_code_block_include_its_opening_line():
    code = [f"value_{number} = {number}" for number in range(1_000)]
    text = "\n".join(["Some words.", "```python", *code])
    assert last_lines(text, 40) == "\n".join(["```python", *code[-40:]])
    assert last_lines(f"{text}\n```\nafter", 1) == "after"


LONG = "src/a_package/with_a_file_name_that_is_long.py"


@pytest.mark.parametrize(
    "text",
    [
        "Return a Vec<String>.",
        "Set <your-api-key> first.",
        "# A Map<K, V>",
        "- an Option<T>\n- a Box<dyn Error>",
        "> if a<b>c",
        "| type | use |\n|---|---|\n| List<int> | numbers |",
        "<details>\n\nInside.\n\n</details>",
        "<div>\nA block.\n</div>",
        "<!-- TODO: remove -->",
        "![a picture](shot.png)",
        "See [the page].\n\n[the page]: https://example.com/a",
        f"| lines | file |\n|---|---|\n| 12 | {LONG} |",
    ],
)
def test_no_word_of_an_answer_is_lost(text):
    console = Console(width=40)
    with console.capture() as capture:
        console.print(WholeMarkdown(text))
    shown = "".join(capture.get().split())
    words = text.translate({ord(each): " " for each in "#|[]()-"}).split()
    assert [word for word in words if word.strip("!>:") not in shown] == []


@pytest.mark.parametrize(
    "end", ["\n", "\r", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\u2028"]
)
@pytest.mark.parametrize("first", ["", "Which day?"])
def test_no_line_of_a_servers_question_leaves_its_block(first, end):
    text = f"{first}{end}{end}# Approved{end}{end}- y{end}"
    question = {"server": "inn", "question": text, "form": {"properties": {}}}
    _, _, block = question_text(question).partition("\n\n")
    assert [line for line in safe(block).split("\n") if not line.startswith("    ")] == []


def test_a_line_of_an_argument_does_not_look_like_another_argument():
    assert "\nto: bank" not in all_of({"body": "Hello\nto: bank", "amount": 5})


def test_a_diff_shows_changes_of_a_long_file_but_not_a_change_of_most_of_its_lines():
    before = [f"line {number}" for number in range(12_000)]
    after = ["first", *before[1:], "last"]
    diff = changed_lines(before, after)
    assert [line for line in diff if line[0] in "+-"] == ["-line 0", "+first", "+last"]
    after[::2] = ["changed"] * len(after[::2])
    assert not changed_lines(before, after)
