"""The query language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.domain.errors import InvalidRequest
from turnwire.domain.searching.queries import MAX_QUERY_CHARACTERS, MAX_QUERY_WORDS, Query, Term, parse_query
from turnwire.domain.searching.words import tokens, words


def term(*words: str) -> Term:
    """Returns a term; a "*" at its end says that the last word may go on."""
    *front, last = words
    return Term((*front, last.removesuffix("*")), last.endswith("*"))


def all_of(*terms: Term) -> tuple[tuple[Term, ...], ...]:
    """Returns groups of one term each."""
    return tuple((one,) for one in terms)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Plan trip", Query(all_of(term("plan"), term("trip")))),
        ('"Summer trip"', Query(all_of(term("summer", "trip")))),
        ('"summer trip', Query(all_of(term("summer", "trip")))),
        ("trav*", Query(all_of(term("trav*")))),
        ('"summer tr*"', Query(all_of(term("summer", "tr*")))),
        ('"summer tr"*', Query(all_of(term("summer", "tr*")))),
        ("a*b", Query(all_of(term("a", "b")))),
        ("e-mail", Query(all_of(term("e", "mail")))),
        ("plan -work", Query(all_of(term("plan")), (term("work"),))),
        ('plan -"at work" -x*', Query(all_of(term("plan")), (term("at", "work"), term("x*")))),
        ("a OR b", Query(((term("a"), term("b")),))),
        ("a OR b c OR d", Query(((term("a"), term("b")), (term("c"), term("d"))))),
        ("a OR b OR c", Query(((term("a"), term("b"), term("c")),))),
        ("OR a OR", Query(all_of(term("a")))),
        ("a OR OR b", Query(((term("a"), term("b")),))),
        ('a "OR" b', Query(all_of(term("a"), term("or"), term("b")))),
        ("a or b", Query(all_of(term("a"), term("or"), term("b")))),
        ("a , ... - * b", Query(all_of(term("a"), term("b")))),
        ("北京天", Query(all_of(term("北京", "京天")))),
        ("北京", Query(all_of(term("北京")))),
        ("京", Query(all_of(term("京*")))),
        ('"京 x"', Query(all_of(term("京", "x")))),
        ('"x 北京"', Query(all_of(term("x", "北京")))),
        ("北京x", Query(all_of(term("北京", "京", "x")))),
    ],
)
def test_a_text_is_a_query(text: str, query: Query) -> None:
    """Words, phrases, beginnings, what must not be there, and OR."""
    assert parse_query(text) == query


@pytest.mark.parametrize(
    "text", ["", "  ", "...", '""', "-a", "*", "OR", "x" * (MAX_QUERY_CHARACTERS + 1), "x " * (MAX_QUERY_WORDS + 1)]
)
def test_nothing_to_look_for_is_an_error(text: str) -> None:
    """And too much as well; it names the field."""
    with pytest.raises(InvalidRequest) as caught:
        parse_query(text)
    assert [violation.field for violation in caught.value.violations] == ["query"]


@given(st.text(max_size=80))
def test_every_text_is_a_query_or_has_nothing_to_look_for(text: str) -> None:
    """No text is wrong in another way."""
    try:
        query = parse_query(text)
    except InvalidRequest:
        return
    assert query.groups
    assert all(group for group in query.groups)


TEXT = "Plan the summer trip to 北京天安门, plan it well"


@pytest.mark.parametrize(
    ("query", "is_hit"),
    [
        ("plan well", True),
        ("plan winter", False),
        ('"the summer"', True),
        ('"summer the"', False),
        ("sum*", True),
        ("um*", False),
        ('"summer tri*"', True),
        ("plan -winter", True),
        ("plan -summer", False),
        ("winter OR summer", True),
        ("京天安", True),
        ("京安", False),
        ("门", True),
        ('"to 北京"', True),
        ('"天安门 plan"', True),
        ('"天安 plan"', False),
    ],
)
def test_a_query_matches_a_text(query: str, is_hit: bool) -> None:
    """By its words."""

    def has(one: Term) -> bool:
        return any(one.spans(words(TEXT)))

    asked = parse_query(query)
    found = all(any(map(has, group)) for group in asked.groups) and not any(map(has, asked.without))
    assert found is is_hit


@pytest.mark.parametrize(
    ("query", "count"),
    [("plan", 2), ("pl*", 2), ("summer", 1), ('"plan it"', 1), ('"plan i*"', 1), ("x", 0), ("天安", 1)],
)
def test_a_term_is_counted(query: str, count: int) -> None:
    """As often as it is in a text."""
    [[one]] = parse_query(query).groups
    assert one.count(tokens(TEXT)) == count
    assert len(list(one.spans(words(TEXT)))) == count
