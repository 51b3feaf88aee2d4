"""The form of own tokens."""

import re

import pytest

from turnwire.identity.access_tokens import new_token, problem_of, token_hash


def test_tokens_have_one_form_and_differ() -> None:
    """The prefix, 43 characters for 256 bits, and a checksum that fits."""
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == len({token_hash(token) for token in tokens}) == 100
    assert all(re.fullmatch(r"tw_[0-9A-Za-z]{49}", token) and not problem_of(token) for token in tokens)


@pytest.mark.parametrize("token", ["", "tw_", "tw_short", "tw_" + "!" * 49, "tw_" + "é" * 49, "tw_" + "x" * 49 + "\n"])
def test_other_texts_are_no_tokens(token: str) -> None:
    """Whatever they are, none raises."""
    assert problem_of(token) == "not of the form of a token"
    assert len(token_hash(token)) == 32


def test_a_mistyped_token_is_recognised() -> None:
    """Any other last character of the random part does not fit the checksum."""
    token = new_token()
    other = "a" if token[20] != "a" else "b"
    assert problem_of(token[:20] + other + token[21:]) == "a mistyped token"
