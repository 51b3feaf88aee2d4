"""Titles of a model: what it is asked, and what becomes one."""

import pytest

from tests.support.fakes.domain_values import make_answer, make_message
from turnwire.core.use_cases.titles import cleaned_title, request_of


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Lions", "Lions"),
        ("\n\n  Lions at\tnight. \nThey sleep.", "Lions at night"),
        ('"Lions"', "Lions"),
        ("**Title: Lions**", "Lions"),
        ("Titel: „Löwen“", "Löwen"),
        ("a\x00b\x1b[31mc\u202ed", "a b [31mc d"),
        ("", ""),
        (" \n\"'\n ", ""),
        ("Lions sleep most of the day", "Lions sleep most of…"),
        ("x" * 30, "x" * 19 + "…"),
        ("x" * 20, "x" * 20),
        ("Lions sleep " + "x" * 20, "Lions sleep…"),
        ("Lions eat " + "x" * 20, "Lions eat " + "x" * 9 + "…"),
        ("The lions " + "x" * 20, "The lions " + "x" * 9 + "…"),
        ("Lions sing " + "x" * 20, "Lions sing " + "x" * 8 + "…"),
        ("All lions  " + "x" * 20, "All lions " + "x" * 9 + "…"),
    ],
)
def test_a_title_is_one_clean_line(written: str, title: str) -> None:
    """It has a limited number of characters, without quotes or marks around it."""
    assert cleaned_title(written, 20) == title


def test_a_model_gets_the_beginnings_of_question_and_answer() -> None:
    """Half of the characters each; nothing is asked about messages without words."""
    question, answer = make_message("msg_1", "q" * 5000), make_message("msg_2", "a" * 5000)
    asked = request_of(question, answer, 100)
    assert ("q" * 50 in asked, "q" * 51 in asked, "a" * 50 in asked, "a" * 51 in asked) == (True, False, True, False)
    assert len(request_of(question, None, 100)) < 200
    assert request_of(make_answer("msg_3"), None, 100) == ""
