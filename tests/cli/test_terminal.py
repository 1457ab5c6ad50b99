"""What reaches a terminal: safe text, lines of its width."""

import io
import logging
import sys
import unicodedata

from agentloop.cli.terminal import Log, Terminal, exact, one_line, safe

ALL = [chr(code) for code in range(sys.maxunicode + 1)]
CONTROLS = [c for c in ALL if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
TURNS = [c for c in ALL if unicodedata.bidirectional(c) in ("LRE", "RLE", "PDF", "LRO", "RLO")]
TURNS += [c for c in ALL if unicodedata.bidirectional(c) in ("LRI", "RLI", "FSI", "PDI")]
MARKS = "\u200e\u200f\u061c"


def test_nothing_that_a_terminal_obeys_passes():
    for character in {*CONTROLS, *TURNS, *MARKS} - {"\n", "\t"}:
        for made in (safe, exact, one_line):
            shown = made(f"a{character}b")
            assert shown.isascii(), character
            assert shown.isprintable(), character
    assert safe("a\n\tb") == "a\n\tb"
    assert one_line("a\n\tb") == r"a\n b"


def test_what_cannot_be_seen_is_spelled_out():
    for character in "\u00ad\u200b\u2060\ufeff\u3164\U000e0041\U000e0100\u2028":
        assert safe(character).isascii(), character
    for joiner in "\u200c\u200d":
        assert safe(joiner) == joiner
        assert exact(joiner).isascii()


def test_a_sequence_that_is_cut_anywhere_stays_harmless():
    stream = io.StringIO()
    terminal = Terminal(stream)
    for piece in "\x1b]52;c;ZXZpbA==\x07\x1b[2J":
        terminal.say(piece)
    assert stream.getvalue().replace("\n", "") == r"\x1b]52;c;ZXZpbA==\x07\x1b[2J"


def test_what_is_logged_is_safe_and_short():
    stream = io.StringIO()
    log = Log(Terminal(stream))
    log.handle(logging.LogRecord("x", logging.WARNING, "", 1, "bad \x1b[2J", (), None))
    log.handle(logging.LogRecord("httpx", logging.INFO, "", 1, "GET /", (), None))
    log.handle(logging.LogRecord("agentloop", logging.INFO, "http.py", 1, "m: again", (), None))
    assert stream.getvalue() == "(bad \\x1b[2J)\n(again)\n"
