"""Environment variables in configuration files, and masking of secret values."""

import json
from base64 import b64encode
from urllib.parse import quote, quote_plus

import pytest

from agentloop.toolkits.environment import SHORTEST, Secrets, fill_in, mask, texts_in_url
from tests.properties import example, given, st

KEY = "k-12345/67+89"


def test_variables_are_inserted_as_json_strings(monkeypatch):
    monkeypatch.setenv("NAME", 'a "b"\n')
    text, secrets = fill_in('{"a": "<${NAME}>", "b": "${env:NAME}", "c": "$NAME ${}"}')
    assert json.loads(text) == {"a": '<a "b">', "b": 'a "b"', "c": "$NAME ${}"}
    assert secrets == {'a "b"'}


def test_an_unset_variable_has_its_default_or_is_named_in_the_error(monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    assert fill_in("${NOT_SET:-info} ${EMPTY:-a/b} ${EMPTY}.") == ("info a/b .", {""})
    for place in ("${NOT_SET}", "${input:NOT_SET}"):
        with pytest.raises(ValueError, match="NOT_SET"):
            fill_in(place)


@pytest.mark.parametrize(
    "echo",
    [
        "k-12345/67+89",
        r"k-12345\/67+89",  # PHP's json_encode
        r"k-12345\u002F67\u002B89",  # System.Text.Json
        "k-12345%2F67%2B89",
        "k-12345%2f67%2b89",
        "k-12345/67%2B89",
        "k-12345%2F67+89",
    ],
)
def test_a_secret_is_masked_in_every_encoding_that_a_server_may_echo(echo):
    assert mask(f"no such key: {echo}!", [KEY]) == "no such key: ***!"


@given(st.text(st.characters(codec="utf-8"), min_size=SHORTEST))
@example('pa"ss w\\ord\\\\')
def test_any_secret_is_masked_in_any_encoding(secret):
    encodings = [secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)]
    for encode in (quote, quote_plus):
        encodings += [encode(secret), encode(secret, safe="")]
    for encoded in encodings:
        assert mask(f"<{encoded}>", [secret]).strip("<>'\"") == "***"


def test_a_short_secret_is_not_masked_and_the_longest_match_is_masked_completely():
    assert mask("a token, tokens-2", ["a", "token", "tokens", "tokens-2"]) == "a token, ***"


def test_masking_does_not_backtrack_on_hostile_text():
    for text, secret in (
        ("\\" * 1_000_000 + " x", "\\" * 10 + "x"),
        ("%2f" * 300_000 + " x", "/" * 10 + "x"),
    ):
        assert mask(text, [secret]) == text


def test_a_long_document_is_masked_in_every_encoding():
    document = 'It says "é", / and more.\n' * 100
    as_json = json.dumps(document, ensure_ascii=False)
    echoes = [document, json.dumps(document), as_json, as_json.replace("/", r"\/"), repr(document)]
    for encode in (quote, quote_plus):
        echoes += [encode(document), encode(document, safe="")]
    for echo in echoes:
        assert mask(f"<{echo}>", [document]).strip("<>'\"") == "***"


def test_masking_does_not_backtrack_on_a_long_repetitive_secret():
    text = "a/" * 500_000
    for secret in ("a/" * 400 + "b", "a/" * 1_500):
        assert mask(text, [secret]) == text.replace(secret, "***")


def test_the_texts_in_a_url_exclude_the_host_and_include_the_basic_auth_value():
    header = b64encode(b"user:p@ss").decode()
    assert texts_in_url("https://user:p%40ss@h.com/s/mcp?key=a") - {"", "https"} == {
        *("user", "p%40ss", "p@ss", header, "s", "mcp", "key", "a")
    }
    assert {"to/ken", "hash"} <= texts_in_url("https://h.com/to%2Fken#hash")
    assert b64encode(b"token:").decode() in texts_in_url("https://token@h.com/mcp")


def test_the_repr_of_secrets_shows_no_secret():
    assert f"{Secrets([KEY])} {Secrets([KEY])!r}" == "<1 secrets> <1 secrets>"
