"""Page tokens are opaque, safe in a URL, and only good for their own listing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.domain.errors import InvalidRequest
from turnwire.storage.page_tokens import decode_token, encode_token


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20), st.lists(st.integers(-(2**62) + 1, 2**62 - 1), max_size=3))
def test_a_token_gives_its_key_back(listing: str, key: list[int]) -> None:
    """For the same listing and length."""
    token = encode_token(listing, *key)
    assert token.replace("-", "").replace("_", "").isalnum()
    assert decode_token(token, listing, len(key)) == tuple(key)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_token_or_refused(token: str) -> None:
    """Nothing else is raised."""
    try:
        assert len(decode_token(token, "messages", 2)) == 2
    except InvalidRequest as error:
        assert error.violations[0].field == "page_token"


@pytest.mark.parametrize(("listing", "length"), [("sessions", 2), ("messages", 1), ("messages", 3), ("", 2)])
def test_a_token_is_for_one_listing(listing: str, length: int) -> None:
    """Its name and the length of its key are part of it."""
    with pytest.raises(InvalidRequest):
        decode_token(encode_token("messages", 1, 2), listing, length)
