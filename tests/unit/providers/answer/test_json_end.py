"""The end of JSON that comes in pieces."""

import json

from hypothesis import given
from hypothesis import strategies as st

from turnwire.providers.answer.json_end import JsonEnd

VALUES = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=st.dictionaries(st.text(), VALUES, max_size=4), cuts=st.lists(st.integers(1, 9), min_size=1))
def test_whole_with_its_last_bracket_and_not_before(value: dict[str, object], cuts: list[int]) -> None:
    """Wherever the text is cut, and whatever its strings hold."""
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        end, place = JsonEnd(), 0
        while place < len(text):
            assert not end.is_whole
            size = cuts[place % len(cuts)]
            end.read(text[place : place + size])
            place += size
        assert end.is_whole


def test_what_is_no_object_has_no_end() -> None:
    """Nothing, a text and what stays open: the arguments of a call are an object."""
    for text in ("", '"{}"', "1", "[", '{"a":"}', "}"):
        end = JsonEnd()
        end.read(text)
        assert not end.is_whole
