"""Tokens: an estimate, or the count of tiktoken."""

import json
import sys
import threading
from base64 import b64encode
from copy import copy
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from agentloop import AssistantMessage, ImagePart, Tool, ToolCall, UserMessage
from agentloop.common.tokens import (
    count_tokens,
    load_encoding,
    message_tokens,
    tool_tokens,
)
from agentloop.common.windows import context_window

LETTERS = {bytes([byte]): byte for byte in range(256)}  # a vocabulary with a token per byte
TEXTS = ["hello", "é🚂", "<|endoftext|>", "\ud800"]


@pytest.fixture
def loaded(monkeypatch):
    """Vocabularies that need no download; returns the names of the loaded ones."""
    tiktoken = pytest.importorskip("tiktoken")
    names = []

    def get_encoding(name):
        names.append(name)
        return tiktoken.Encoding(
            name, pat_str=r"\S+|\s+", mergeable_ranks=LETTERS, special_tokens={"<|endoftext|>": 256}
        )

    monkeypatch.setattr("agentloop.common.tokens._vocabularies", {})
    monkeypatch.setattr(tiktoken, "get_encoding", get_encoding)
    return names


def test_counts_for_a_model_use_its_vocabulary_once_loaded(loaded):
    estimates = [count_tokens(text) for text in TEXTS]
    assert [count_tokens(text, "gpt-5") for text in TEXTS] == estimates
    assert load_encoding("gpt-5")
    assert [count_tokens(text, "gpt-5") for text in TEXTS] == [5, 6, 13, 3]
    calls = AssistantMessage("abcd", (ToolCall("1", "look", '{"a":123}'),))
    assert message_tokens([calls], "gpt-5") == 4 + 4 + 4 + len('look{"a":123}')
    declared = Tool("look", "12345678", {"type": "object"})
    assert tool_tokens([declared], "gpt-5") == len('look12345678{"type":"object"}')
    assert [count_tokens(text) for text in TEXTS] == estimates  # estimates stay the same


def test_the_vocabulary_of_a_model_belongs_to_its_family_or_is_the_newest(loaded):
    models = ["gpt-4", "openai/gpt-4o", "gpt-5-mini", "my-model"]
    assert all(map(load_encoding, models))
    assert loaded == ["cl100k_base", "o200k_base", "o200k_base", "o200k_base"]


def test_without_tiktoken_counts_remain_estimates(loaded, monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert not load_encoding("gpt-5")
    assert count_tokens("x" * 400, "gpt-5") == count_tokens("x" * 400)


def test_without_the_vocabulary_counts_remain_estimates(loaded, monkeypatch):
    def fails(name):
        raise ConnectionError("not available")

    monkeypatch.setattr("tiktoken.get_encoding", fails)
    assert not load_encoding("gpt-5")
    assert count_tokens("x" * 400, "gpt-5") == count_tokens("x" * 400)


def test_a_download_that_never_ends_is_given_up(loaded, monkeypatch):
    ends = threading.Event()
    monkeypatch.setattr("tiktoken.get_encoding", lambda name: ends.wait(20))
    monkeypatch.setattr("agentloop.common.tokens.DOWNLOAD_SECONDS", 0.01)
    assert not load_encoding("gpt-5")
    assert count_tokens("x" * 400, "gpt-5") == count_tokens("x" * 400)
    [download] = [thread for thread in threading.enumerate() if thread.name == "vocabulary"]
    assert download.daemon, "it would keep the program from ending"
    ends.set()


def test_a_tool_that_the_provider_loads_later_is_not_counted():
    look = Tool("look", "Look.", {"type": "object"})
    later = Tool("later", "Later.", {}, extra={"anthropic": {"defer_loading": True}})
    assert tool_tokens([look, later]) == tool_tokens([look])


def test_an_encoding_needs_the_name_of_a_model(loaded):
    with pytest.raises(ValueError, match="model"):
        load_encoding("")


DATA = Random(1).randbytes(3_000)
UUIDS = [str(UUID(bytes=DATA[at : at + 16])) for at in range(0, 1_600, 16)]
ROWS = [(n, DATA[n], f"2026-11-{n % 28 + 1:02}", f"{n * 7919 % 9973 / 7:.2f}") for n in range(100)]
RECORDS = [dict(zip(("id", "code", "day", "price"), row, strict=True)) for row in ROWS]
REAL = {  # texts, and their tokens in the vocabulary o200k_base
    "base64": (b64encode(DATA).decode(), 2_723),
    "hex": (DATA.hex(), 3_384),
    "UUIDs": ("\n".join(UUIDS), 2_368),
    "CSV": ("\n".join(",".join(map(str, row)) for row in ROWS), 1_530),
    "JSON": (json.dumps(RECORDS), 3_133),
    "ls -l": (
        "\n".join(
            f"-rw-r--r-- 1 root root {a * 7919:>9} Nov {a % 28 + 1:>2} 10:{b % 60:02} file_{b}.py"
            for a, b, _, _ in ROWS
        ),
        2_634,
    ),
    "table": ("\n".join(f"| {c:<24} | {d:>24} | {'open':<24} |" for _, _, c, d in ROWS), 1_931),
    "log": (
        "\n".join(
            f"{c}T12:00:{b % 60:02}Z INFO [worker-{b % 9}] GET /api/items/{a} took {b}ms"
            for a, b, c, _ in ROWS
        ),
        2_999,
    ),
    "code": ("def total(rows):\n    if not rows:\n        return None\n    return sum(rows)\n", 18),
    "minified": ("if(!t||!e.length)return null;for(var n=0,r=e.length;n<r;n++)t.push(e[n])", 28),
    "HTML": ('<li class="item"><a href="/orders/17">Order 17</a></li>\n', 20),
    "diff": ("@@ -1,4 +1,4 @@\n-    if not rows:\n+    if rows is None:\n", 24),
    "URL": ("https://example.com/search?q=red+shoes&page=2&utm_source=newsletter", 19),
    "English": ("A run continues after the process was killed, as every result is saved.", 15),
    "capitals": ("THE SOFTWARE IS PROVIDED AS IS, WITHOUT WARRANTY, EXPRESS OR IMPLIED.", 14),
    "German": ("Die Donau ist der zweitlängste Fluss in Europa und mündet ins Schwarze Meer.", 22),
    "French": ("Le Danube est le deuxième fleuve d'Europe, et il traverse ou longe dix pays.", 19),
    "Czech": ("Dunaj je druhá nejdelší řeka v Evropě a ústí do Černého moře.", 25),
    "Russian": ("Дунай является второй по длине рекой в Европе.", 13),
    "Greek": ("Ο Δούναβης είναι ο δεύτερος μακρύτερος ποταμός της Ευρώπης.", 24),
    "Arabic": ("نهر الدانوب هو ثاني أطول أنهار أوروبا ويمر عبر عشر دول.", 19),
    "Hindi": ("डेन्यूब यूरोप की दूसरी सबसे लंबी नदी है।", 14),
    "Chinese": ("多瑙河是欧洲第二长河,流经十个国家后注入黑海。", 21),
    "Japanese": ("ドナウ川はヨーロッパで二番目に長い川です。", 20),
    "Korean": ("다뉴브강은 유럽에서 두 번째로 긴 강입니다.", 15),
    "emoji": ("Great job 🎉 ship it 🚀 thanks a lot 🙏", 13),
}


@pytest.mark.parametrize(("text", "tokens"), REAL.values(), ids=REAL)
def test_the_estimate_is_near_the_tokens_of_a_vocabulary(text, tokens):
    assert 0.75 < count_tokens(text) / tokens < 1.35


@pytest.mark.parametrize("text", [" ", "\n", "=", ".", "a", "A", "7", "é", "中", "\0", "\ud800"])
def test_the_estimate_of_a_long_repetitive_text_is_never_small(text):
    assert count_tokens(text * 6_400) >= 100


@pytest.mark.parametrize("name", ["base64", "JSON", "log", "German"])
def test_a_long_text_is_estimated_from_a_sample(name):
    text, _ = REAL[name]
    tokens = count_tokens(text)
    times = 1 + 300_000 // len(text)
    assert count_tokens(text * times) == pytest.approx(times * tokens, rel=0.1)


def test_tokens_of_messages_and_tools_are_the_tokens_of_their_texts():
    assert [count_tokens(text) for text in ("", "look", "look at", "1 2", "a_b")] == [0, 1, 2, 3, 2]
    calls = AssistantMessage("look", (ToolCall("1", "look", "123"),))
    assert message_tokens(calls) == 4 + 1 + 4 + 2
    image = ImagePart(url="https://example.com/a.png")
    assert message_tokens(UserMessage(["look", image, image])) == 4 + 1 + 2_000
    assert message_tokens([calls, calls]) == 2 * message_tokens(calls)
    assert message_tokens([]) == 0
    declared = Tool("look", "12345678", {"type": "object"})
    assert tool_tokens([declared, declared]) == 2 * count_tokens('look12345678{"type":"object"}')


def test_a_changed_message_is_counted_again():
    message = UserMessage("look")
    assert message_tokens(message) == 4 + 1
    assert message_tokens(replace(message, content="look at")) == 4 + 2
    assert message_tokens(copy(message)) == 4 + 1


def test_the_context_window_is_known_of_some_models():
    pytest.importorskip("genai_prices")
    assert context_window("models/gemini-2.5-flash") == 1_048_576
    assert context_window("anthropic/claude-3-5-haiku-latest") == 200_000
    assert context_window("claude-3-5-haiku-latest") == 200_000
    assert context_window("nobody-knows-it") is None
