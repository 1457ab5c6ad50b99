"""What reaches a terminal: safe text, lines of its width."""

import io
import logging
import sys
import unicodedata

from agentloop.cli.terminal import Log, Terminal, exact, one_line, outline, safe

ALL = [chr(code) for code in range(sys.maxunicode + 1)]
CONTROLS = [c for c in ALL if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
DIRECTIONS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
TURNS = [c for c in ALL if unicodedata.bidirectional(c) in DIRECTIONS] + [*"\u200e\u200f\u061c"]
UNSEEN = "\u00ad\u200b\u2060\ufeff\u3164\U000e0041\U000e0100\u2028"


def test_what_a_terminal_obeys_or_does_not_show_is_spelled_out():
    for character in {*CONTROLS, *TURNS, *UNSEEN} - {"\n", "\t"}:
        for made in (safe, exact, one_line):
            shown = made(f"a{character}b")
            assert shown.isascii(), character
            assert shown.isprintable(), character
    assert (safe("a\n\tb"), one_line("a\n\tb")) == ("a\n\tb", r"a\n b")
    for joiner in "\u200c\u200d":
        assert safe(joiner) == joiner
        assert exact(joiner).isascii()


def test_what_is_said_and_logged_is_safe_also_when_it_comes_in_pieces():
    stream = io.StringIO()
    terminal = Terminal(stream)
    for piece in "\x1b]52;c;ZXZpbA==\x07\x1b[2J":
        terminal.say(piece)
    assert stream.getvalue().replace("\n", "") == r"\x1b]52;c;ZXZpbA==\x07\x1b[2J"
    stream.truncate(0)
    stream.seek(0)
    log = Log(terminal)
    log.handle(logging.LogRecord("x", logging.WARNING, "", 1, "bad \x1b[2J", (), None))
    log.handle(logging.LogRecord("agentloop", logging.INFO, "memory.py", 1, "quiet", (), None))
    log.handle(logging.LogRecord("agentloop", logging.INFO, "http.py", 1, "m: again", (), None))
    assert stream.getvalue() == "(bad \\x1b[2J)\n(again)\n"
    assert outline("one\n\n two\nthree\nfour") == "[4 lines]  three  four"
