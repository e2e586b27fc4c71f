"""The descriptions that are read from docstrings."""

from inspect import cleandoc

import pytest

from portico.core.definitions import docstrings


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("", ""),
        ("One line.", "One line."),
        ("Two\nlines.\n\nMore.", "Two lines."),
        ("Words.\nArgs:\n    a: A.", "Words."),
        ("Args:\n    a: A.", ""),
        ("Words.\n:param a: A.", "Words."),
    ],
)
def test_the_first_paragraph_describes_the_function(text: str, summary: str) -> None:
    assert docstrings.summary(text) == summary


GOOGLE = """
    Do it.

    Args:
        city: Where to look,
            also a zip code: 12345.
        days (int, optional): How many.

        *more: The rest.
        silent:

    Returns:
        not_a_parameter: Words.
    """

SPHINX = """
    Do it.

    :param city: Where to look,
        also a zip code.
    :param int days: How many.
    :type days: int
    :returns: Words.
    """


def test_an_args_section_describes_the_parameters() -> None:
    assert docstrings.parameters(cleandoc(GOOGLE)) == {
        "city": "Where to look, also a zip code: 12345.",
        "days": "How many.",
        "more": "The rest.",
    }


def test_param_fields_describe_the_parameters() -> None:
    assert docstrings.parameters(cleandoc(SPHINX)) == {
        "city": "Where to look, also a zip code.",
        "days": "How many.",
    }


@pytest.mark.parametrize(
    "text", ["", "Words.", "Args:", "Args:\n\n", ":param", ":param :", ":param a"]
)
def test_a_docstring_without_descriptions_has_none(text: str) -> None:
    assert docstrings.parameters(text) == {}
