"""Envelopes: any messages come back, and what is not whole is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.api.web.encoding.envelopes import BrokenEnvelope, Envelope, envelope, envelopes

MESSAGES = st.lists(st.builds(Envelope, st.integers(0, 255), st.binary(max_size=300)), max_size=5)


@given(MESSAGES)
def test_messages_come_back(messages: list[Envelope]) -> None:
    """In order, with their flags."""
    body = b"".join(envelope(flags, data) for flags, data in messages)
    assert list(envelopes(body)) == messages


@given(MESSAGES.filter(bool), st.data())
def test_a_body_that_was_cut_is_broken(messages: list[Envelope], data: st.DataObject) -> None:
    """Wherever it was cut, except between two messages."""
    body = b"".join(envelope(flags, one) for flags, one in messages)
    ends = {0}
    for _, one in messages:
        ends.add(max(ends) + 5 + len(one))
    cut = data.draw(st.integers(1, len(body) - 1))
    if cut not in ends:
        with pytest.raises(BrokenEnvelope):
            list(envelopes(body[:cut]))
