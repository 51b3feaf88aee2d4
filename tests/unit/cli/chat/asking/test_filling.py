"""A question while a person answers it."""

import json
from typing import Any

import pytest

from opencode.question.question_pb2 import (
    QUESTION_ACTION_ACCEPT,
    QUESTION_ACTION_CANCEL,
    QUESTION_ACTION_DECLINE,
    LinkForm,
    Question,
    SchemaForm,
)
from turnwire.cli.chat.asking.filling import Filling, Reply

PROPERTIES = {
    "name": {"type": "string", "title": "Name"},
    "coats": {"type": "integer", "default": 1},
    "note": {"type": "string"},
}
LINK = Question(link=LinkForm(url="https://example.com/"))


def form(properties: dict[str, Any] = PROPERTIES) -> Filling:
    """Returns the filling of a form whose first field is required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return Filling(Question(question_id="q", schema=SchemaForm(schema_json=json.dumps(schema))))


def typed(filling: Filling, *lines: str) -> Reply | None:
    """Types lines, and returns what comes of the last one."""
    *before, last = lines
    assert [filling.take(line) for line in before] == [None] * len(before)
    return filling.take(last)


def test_fields_are_asked_in_order_and_sent_when_all_was_seen() -> None:
    """Enter alone takes a default, or leaves an optional field out."""
    filling = form()
    assert typed(filling, "ann", "", "") is None
    assert filling.filled == [("Name", "ann"), ("coats", "1"), ("note", "")]
    assert filling.take("y") == Reply(QUESTION_ACTION_ACCEPT, '{"name": "ann", "coats": 1}')
    assert filling.is_sending


def test_a_field_is_asked_until_its_value_fits() -> None:
    """A required one has to have a value."""
    filling = form()
    assert typed(filling, "") is None
    assert (filling.problem, filling.place) == ("Name: is required", "1 of 3")
    assert typed(filling, "/skip") is None
    assert filling.problem == "Name: is required"
    assert typed(filling, "ann", "many") is None
    assert (filling.problem, filling.place) == ("coats: is not a whole number", "2 of 3")
    assert typed(filling, "3") is None
    assert (filling.problem, filling.place) == ("", "3 of 3")


def test_a_field_is_changed_before_it_is_sent() -> None:
    """By its number; Enter keeps what it has, /skip takes it away."""
    filling = form()
    assert typed(filling, "ann", "4", "hello", "1", "", "3", "/skip", "2", "5") is None
    assert filling.filled == [("Name", "ann"), ("coats", "5"), ("note", "")]
    assert typed(filling, "4") is None
    assert filling.problem.startswith("Answer the question first.")


def test_a_word_with_a_space_in_front_is_text() -> None:
    """So that any text can be a value."""
    filling = form()
    assert typed(filling, " /cancel") is None
    assert filling.filled[0] == ("Name", "/cancel")


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("/decline", Reply(QUESTION_ACTION_DECLINE)),
        ("/decline not now ", Reply(QUESTION_ACTION_DECLINE, reason="not now")),
        ("/cancel", Reply(QUESTION_ACTION_CANCEL)),
    ],
)
def test_a_form_is_left_at_any_field(line: str, reply: Reply) -> None:
    """What was filled in is not sent."""
    assert typed(form(), line) == reply
    assert typed(form(), "ann", line) == reply
    assert typed(form(), "ann", "", "", line) == reply


def test_fields_that_the_server_names_are_asked_again() -> None:
    """The others keep their values; an error that names none is shown where the form is sent."""
    filling = form()
    typed(filling, "ann", "7", "", "y")
    filling.refuse("content_json: it does not fit: name: 'ann' is too short; coats: 7 is greater than 5")
    assert (filling.is_sending, filling.place) == (False, "1 of 3")
    assert "too short" in filling.problem
    assert typed(filling, "anna", "5") is None
    assert (filling.field, filling.filled[:2]) == (None, [("Name", "anna"), ("coats", "5")])
    filling.refuse("UNAVAILABLE: gone")
    assert (filling.field, filling.problem) == (None, "UNAVAILABLE: gone")
    filling.refuse("it does not fit: 'note' is a required property")
    assert filling.place == "3 of 3"


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("y", Reply(QUESTION_ACTION_ACCEPT)),
        ("accept", Reply(QUESTION_ACTION_ACCEPT)),
        ("no, never", Reply(QUESTION_ACTION_DECLINE, reason="never")),
        ("c", Reply(QUESTION_ACTION_CANCEL)),
        ("/cancel", Reply(QUESTION_ACTION_CANCEL)),
        ("yes please do", None),
        ("1", None),
        ("", None),
    ],
)
def test_an_address_is_agreed_to_by_few_words(line: str, reply: Reply | None) -> None:
    """Other text is no answer, and nothing is filled in."""
    assert Filling(LINK).take(line) == reply


@pytest.mark.parametrize("question", [Question(), Question(schema=SchemaForm(schema_json='{"properties": 7}'))])
def test_what_cannot_be_shown_is_only_declined_or_cancelled(question: Question) -> None:
    """Something newer than this chat."""
    filling = Filling(question)
    assert filling.take("y") is None
    assert "cannot show the form" in filling.problem
    assert filling.take("n") == Reply(QUESTION_ACTION_DECLINE)
