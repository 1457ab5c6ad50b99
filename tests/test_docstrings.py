"""What parse_docstring makes of the three styles, and of what is none of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentloop.docstrings import parse_docstring

GOOGLE = """Finds people.

    Looks in all books.

    Args:
        name (str, optional): who, in a text
            that goes on
            for long
        limit (dict[str, int]): how many: at most
        *rest: ignored

        last:
            on its own line

    Returns:
        what: was found
    """

NUMPY = """
    Finds people.

    Parameters
    ----------
    name : str, optional
        who, in a text
        that goes on
    limit, offset : int
        how many

    Returns
    -------
    list
        what was found
    """

SPHINX = """Finds people.

    :param name: who, in a text
        that goes on
    :param int limit: how many
    :type name: str
    :param dict[str, int] table: of what
    :returns: what was found
    :raises ValueError: never
    """


def test_the_google_style_is_read() -> None:
    assert parse_docstring(GOOGLE) == (
        "Finds people.\n\nLooks in all books.",
        {
            "name": "who, in a text that goes on for long",
            "limit": "how many: at most",
            "rest": "ignored",
            "last": "on its own line",
        },
    )


def test_the_numpy_style_is_read() -> None:
    assert parse_docstring(NUMPY) == (
        "Finds people.",
        {"name": "who, in a text that goes on", "limit": "how many", "offset": "how many"},
    )


def test_the_sphinx_style_is_read() -> None:
    assert parse_docstring(SPHINX) == (
        "Finds people.",
        {"name": "who, in a text that goes on", "limit": "how many", "table": "of what"},
    )


def test_a_docstring_without_sections_is_all_description() -> None:
    text = "Finds people.\n\nNote: a colon is no section,\nand Parameters is a word."
    assert parse_docstring(text) == (text, {})


def test_returns_before_the_parameters_is_no_description() -> None:
    assert parse_docstring("Adds.\n\nReturns:\n    the sum\n\nArgs:\n    a: first") == (
        "Adds.",
        {"a": "first"},
    )


def test_no_docstring_is_an_empty_description() -> None:
    assert parse_docstring(None) == parse_docstring("  \n ") == ("", {})


def test_sections_without_entries_do_no_harm() -> None:
    for text in ("Args:", "Parameters\n----", "Parameters\n----\n", ":param:", "Args:\n\n  a"):
        assert parse_docstring(text) == ("", {})


@given(st.text(st.sampled_from("Args:Parametersxyz -*:\n\t()p,")))
def test_any_text_is_read_without_an_error(text: str) -> None:
    description, parameters = parse_docstring(text)
    assert all("\n" not in value for value in parameters.values())
    assert description == description.strip()
