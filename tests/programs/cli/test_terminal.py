"""Terminal output: escaped text and lines that fit the width."""

import io
import sys
import unicodedata

import pytest

from agentloop import BadResponse
from agentloop.cli.terminal import Terminal, cut, exact, one_line, outline, plain, safe

ALL = [chr(code) for code in range(sys.maxunicode + 1)]
CONTROLS = [c for c in ALL if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
DIRECTIONS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
DIRECTION_MARKS = [c for c in ALL if unicodedata.bidirectional(c) in DIRECTIONS] + [
    *"\u200e\u200f\u061c"
]
INVISIBLE = "\u00ad\u200b\u2060\ufeff\u3164\U000e0041\U000e0100\u2028"


def test_control_and_invisible_characters_are_escaped():
    for character in {*CONTROLS, *DIRECTION_MARKS, *INVISIBLE} - {"\n", "\t"}:
        for escape in (safe, exact, one_line):
            escaped = escape(f"a{character}b")
            assert escaped.isascii(), character
            assert escaped.isprintable(), character
    assert (safe("a\n\tb"), one_line("a\n\tb")) == ("a\n\tb", r"a\n b")
    for joiner in "\u200c\u200d":
        assert safe(joiner) == joiner
        assert exact(joiner).isascii()


def test_text_is_escaped_even_if_it_arrives_in_pieces():
    stream = io.StringIO()
    terminal = Terminal(stream)
    for piece in "\x1b]52;c;ZXZpbA==\x07\x1b[2J":
        terminal.say(piece)
    assert stream.getvalue().replace("\n", "") == r"\x1b]52;c;ZXZpbA==\x07\x1b[2J"
    assert outline("one\n\n two\nthree\nfour") == "[4 lines]  three  four"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"message": "Say \\"x\\".", "param": {}}} (a hint)', 'Say "x".'),  # OpenAI
        ('[{"error": {"code": 400, "message": "No."}}]', "No."),  # Google
        ('{"error": "model \'m\' not found"}', "model 'm' not found"),  # Ollama
        ('{"detail": "Not Found"}', "Not Found"),  # FastAPI
        ('{"error": {"message": "truncated in the', "truncated in the"),
        ("<html>\n<head><title>401 No</title></head>\n<hr>nginx", "401 No"),  # a proxy
        ("no server listens there", "no server listens there"),
    ],
)
def test_an_error_shows_the_message_of_the_provider(body, words):
    assert plain(f"ChatOpenAI('m'): 400: {body}") == f"400: {words}"


def test_an_error_omits_the_events_of_an_interrupted_stream():
    error = BadResponse("the stream ended before the reply did")
    text = f"ChatOpenAI('m'): 200: text/event-stream; charset=utf-8: {error!r}: data: {{}} data: x"
    assert plain(text) == "the answer was interrupted: the stream ended before the reply did"


def test_a_connection_error_omits_the_class_name():
    text = "ChatOpenAI('m'): 127.0.0.1:80: RemoteProtocolError: peer closed connection (a hint)"
    assert plain(text) == "the answer was interrupted: peer closed connection"


def test_a_line_of_the_program_wraps_between_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal(stream := io.StringIO())
    terminal.colour = terminal.is_screen = True
    terminal.say("a line of several words", "2", indent=2)
    assert stream.getvalue() == "\x1b[2ma line of several\n  words\x1b[0m\n"
    terminal.say("see https://example.com/a-long-path")
    assert stream.getvalue().endswith("\nsee\nhttps://example.com/a-long-path\n"), "not broken"


def test_a_line_is_cut_off_at_the_columns_that_its_characters_take():
    assert cut("x" * 20, 20) == "x" * 20
    assert cut("x" * 21, 20) == "x" * 17 + "..."
    assert cut("日本語" * 3, 18) == "日本語" * 3
    assert cut("日本語" * 10, 20) == "日本語日本語日本..."


def test_text_is_printed_even_in_a_terminal_of_one_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "1")
    terminal = Terminal(stream := io.StringIO())
    terminal.is_screen = True
    terminal.say("one two")
    terminal.line("one two")
    assert cut("one two", terminal.width) == "o..."
    assert stream.getvalue() == "one\ntwo\n...\n"
