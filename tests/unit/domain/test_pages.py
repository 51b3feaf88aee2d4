"""Page tokens are opaque, safe in a URL, and only good for their own listing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.domain.errors import InvalidRequest
from turnwire.domain.pages import MAX_PAGE_BYTES, decode_token, encode_token, page_of


@given(st.text(max_size=20), st.lists(st.integers(-(2**62) + 1, 2**62 - 1) | st.text(max_size=9), max_size=3))
def test_a_token_gives_its_key_back(listing: str, key: list[int | str]) -> None:
    """For the same listing and length."""
    token = encode_token(listing, *key)
    assert token.replace("-", "").replace("_", "").isalnum()
    assert decode_token(token, listing, *map(type, key)) == tuple(key)


@given(st.text(max_size=40))
def test_any_text_is_a_token_or_refused(token: str) -> None:
    """Nothing else is raised."""
    try:
        assert len(decode_token(token, "messages", int, int)) == 2
    except InvalidRequest as error:
        assert error.violations[0].field == "page_token"


@pytest.mark.parametrize(
    ("listing", "kinds"),
    [
        ("sessions", (int, int)),
        ("messages", (int,)),
        ("messages", (int, str)),
        ("messages", (int, int, int)),
        ("", (int, int)),
    ],
)
def test_a_token_is_for_one_listing(listing: str, kinds: tuple[type, ...]) -> None:
    """Its name and the types of its key are part of it."""
    with pytest.raises(InvalidRequest):
        decode_token(encode_token("messages", 1, 2), listing, *kinds)


def test_pages_of_rows_in_memory_show_each_row_once() -> None:
    """In the order of their places, whatever comes and goes between two pages."""
    first, token = page_of(["c", "a", "b", "e"], str, "letters", size=2, token="")
    assert first == ("a", "b")
    assert page_of(["0", "c", "a", "e", "d"], str, "letters", size=9, token=token) == (("c", "d", "e"), "")
    assert page_of([], str, "letters", size=2, token="") == ((), "")


def test_pages_of_rows_in_memory_end_by_their_bytes() -> None:
    """A row that has more alone is a page."""

    def sizes(name: str) -> int:
        return {"a": MAX_PAGE_BYTES + 1, "b": MAX_PAGE_BYTES - 1, "c": 1, "d": 1}[name]

    pages, token = [], ""
    while True:
        page, token = page_of("abcd", str, "letters", size=9, token=token, size_of=sizes)
        pages.append("".join(page))
        if not token:
            break
    assert pages == ["a", "bc", "d"]


@pytest.mark.parametrize(
    "token", [encode_token("others", "a"), encode_token("letters", 1), encode_token("letters"), "x"]
)
def test_pages_of_rows_in_memory_take_their_own_tokens(token: str) -> None:
    """A token of another listing, or with another key, is refused."""
    with pytest.raises(InvalidRequest, match="page_token"):
        page_of(["a"], str, "letters", size=1, token=token)
