"""Snippets of texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.domain.errors import InvalidRequest
from turnwire.domain.searching.queries import parse_query
from turnwire.domain.searching.snippets import SNIPPET_CHARACTERS, snippet


def shown(text: str, query: str) -> str:
    """Returns a snippet with its matches in brackets."""
    pieces = snippet(text, parse_query(query))
    return "".join(f"[{piece.text}]" if piece.is_match else piece.text for piece in pieces)


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("A short text", "short", "A [short] text"),
        ("A\n\n  short \t text ", "short text", "A [short] [text] "),
        ("summer trip", '"summer trip"', "[summer trip]"),
        ("travelling traveller", "trav*", "[travelling] [traveller]"),
        ("我们在北京天安门见面", "天安", "我们在北京[天安]门见面"),
        ("我们在北京天安门见面", "北京天安门", "我们在[北京天安门]见面"),
        ("我们在北京", "京", "我们在北[京]"),
        ("北京北京", "京", "北[京]北[京]"),
        ("Straße", "strasse", "[Straße]"),
        ("nothing of it", "absent", "nothing of it"),
        ("a <b>bold</b> word", "bold", "a <b>[bold]</b> word"),
    ],
)
def test_a_short_text_is_shown_whole(text: str, query: str, expected: str) -> None:
    """With its matches marked, and white space as one space each."""
    assert shown(text, query) == expected


def test_a_long_text_is_cut_where_most_matches_are() -> None:
    """A place with both words comes before an earlier one with one of them."""
    text = "plan " + "x " * 300 + "the plan of the trip " + "y " * 300
    found = shown(text, "plan trip")
    assert found.startswith("…x ")
    assert "the [plan] of the [trip] y" in found
    assert found.endswith("y…")
    assert len(found) < SNIPPET_CHARACTERS + 60


def test_a_word_without_an_end_is_cut() -> None:
    """A snippet is bounded whatever the text is."""
    assert len(shown("x" * 10_000, "absent")) <= SNIPPET_CHARACTERS + 10
    assert len(shown("北" * 10_000, "北北北")) <= SNIPPET_CHARACTERS + 60


@given(st.text(alphabet="ab 北京\n.ü", max_size=700), st.text(alphabet="ab 北京*", min_size=1, max_size=6))
def test_a_snippet_is_part_of_its_text(text: str, query: str) -> None:
    """But for white space and what says that it was cut; it has a match when the text has one."""
    try:
        parsed = parse_query(query)
    except InvalidRequest:
        return
    pieces = snippet(text, parsed)
    joined = "".join(piece.text for piece in pieces).strip("…").strip()
    assert joined in " ".join(text.split()) or joined == " ".join(text.split())
    assert len(joined) <= SNIPPET_CHARACTERS + 40
    assert all(piece.text for piece in pieces)
