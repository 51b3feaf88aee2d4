"""The SSE decoder."""

from hypothesis import given
from hypothesis import strategies as st

from turnwire.providers.answer.sse import SseDecoder


def decode(*chunks: bytes) -> list[tuple[bytes, bytes]]:
    """Returns all events of the chunks."""
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish()


def test_fields_of_an_event() -> None:
    """Name and data are read; comments, ids, retries and unknown fields are not."""
    assert decode(b": hi\nid: 1\nretry: 5\nevent: a\ndata: x\nother: y\n\n") == [(b"a", b"x")]


def test_only_one_leading_space_is_dropped() -> None:
    """`data:x`, `data: x` and `data:  x` differ by the second space alone."""
    assert decode(b"data:x\n\ndata: x\n\ndata:  x\n\n") == [(b"", b"x"), (b"", b"x"), (b"", b" x")]


def test_lines_of_data_are_joined() -> None:
    """Several data lines of one event are joined with a line feed; a bare `data` is an empty line."""
    assert decode(b"data: a\ndata\ndata: b\n\n") == [(b"", b"a\n\nb")]


def test_an_event_without_data_is_none() -> None:
    """A name alone gives no event and does not carry over."""
    assert decode(b"event: a\n\ndata: x\n\n") == [(b"", b"x")]


def test_byte_order_mark_at_the_start_is_dropped() -> None:
    """Only the first line may begin with it, also when it is cut."""
    assert decode(b"\xef", b"\xbb\xbfdata: x\n\ndata: \xef\xbb\xbf\n\n") == [(b"", b"x"), (b"", b"\xef\xbb\xbf")]


def test_missing_final_blank_line() -> None:
    """An event at the very end is complete without it."""
    assert decode(b"data: x") == [(b"", b"x")]
    assert decode(b"data: x\n") == [(b"", b"x")]


def test_event_given_as_soon_as_its_blank_line_came() -> None:
    """A carriage return ends a line at once, without waiting for a line feed."""
    decoder = SseDecoder()
    assert decoder.feed(b"data: x\r\n\r") == [(b"", b"x")]
    assert decoder.feed(b"\ndata: y\r\r") == [(b"", b"y")]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([b"", b"a", b"b"]), st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1)
    ),
    max_size=6,
)


@given(EVENTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_cuts_do_not_matter(events: list[tuple[bytes, str]], newline: bytes, data: st.DataObject) -> None:
    """The same events come out wherever the bytes are cut, whatever ends the lines."""
    body = b""
    for name, text in events:
        body += (b"event: " + name + newline if name else b"") + b"data: " + text.encode() + newline + newline
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    chunks = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert decode(*chunks) == [(name, text.encode()) for name, text in events]
