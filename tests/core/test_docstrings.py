"""parse_docstring: Google style, Sphinx style, and other text."""

from __future__ import annotations

import pytest

from agentloop.arguments import parse_docstring
from tests.properties import given, st

GOOGLE = """Finds people.

    Looks in all books.

    Args:
        name (str, optional): who, in a text
            that goes on
            for long
        limit (dict[str, int]): how many: at most

        last:
            on its own line

    Returns:
        what: was found
    """

SPHINX = """Finds people.

    Looks in all books.

    :param name: who, in a text
        that goes on
        for long
    :param dict[str, int] limit: how many: at most
    :type name: str
    :param last:
        on its own line
    :returns: what was found
    :raises ValueError: never
    """


@pytest.mark.parametrize("text", [GOOGLE, SPHINX])
def test_google_and_sphinx_docstrings_are_parsed(text: str) -> None:
    description, parameters = parse_docstring(text)
    assert description == "Finds people.\n\nLooks in all books."
    assert parameters == {
        "name": "who, in a text that goes on for long",
        "limit": "how many: at most",
        "last": "on its own line",
    }


def test_a_docstring_in_another_style_is_a_description_without_parameters() -> None:
    text = "Finds people.\n\nParameters\n----------\nname : str\n    who, note: a person"
    assert parse_docstring(text) == (text, {})


def test_a_returns_section_before_the_parameters_is_not_part_of_the_description() -> None:
    text = "Adds.\n\nReturns:\n    the sum\n\nArgs:\n    a: first"
    assert parse_docstring(text) == ("Adds.", {"a": "first"})


@given(st.text(st.sampled_from("Args:paramxyz -*:\n\t()p,")))
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    description, parameters = parse_docstring(text)
    assert all("\n" not in value for value in parameters.values())
    assert description == description.strip()
