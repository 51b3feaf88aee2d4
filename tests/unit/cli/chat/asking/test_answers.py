"""What is typed at a question."""

import pytest

from turnwire.cli.chat.asking.answers import MAX_REASON_CHARS, Answer, parse_answer


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", Answer("once")),
        (" Yes ", Answer("once")),
        ("A", Answer("always")),
        ("always", Answer("always")),
        ("n", Answer("reject")),
        ("no, use the other file", Answer("reject", "use the other file")),
        ("n: two\nlines", Answer("reject", "two\nlines")),
    ],
)
def test_answers_are_few_words(typed: str, answer: Answer) -> None:
    """In any case but for A, with spaces around; a reason follows a no."""
    assert parse_answer(typed) == answer


@pytest.mark.parametrize("typed", ["", "?", "a", "d", "yes please delete it", "by", "not that", "never", "/help", "yy"])
def test_other_text_is_no_answer(typed: str) -> None:
    """A message that was being typed neither allows nor denies."""
    assert parse_answer(typed) is None


def test_a_reason_is_not_longer_than_the_server_takes() -> None:
    """The rest is left out."""
    assert parse_answer("n " + "x" * 9999) == Answer("reject", "x" * MAX_REASON_CHARS)
