"""Values are counted before they are parsed."""

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue
from hypothesis import given
from hypothesis import strategies as st

from opencode.message.message_pb2 import MessagePart, SendMessageRequest, TextPart
from turnwire.api.request_values import MAX_DEPTH, MAX_JSON_BYTES, MAX_VALUES, check_fields, check_json, counted
from turnwire.domain.errors import InvalidRequest

SEND = SendMessageRequest.DESCRIPTOR


def test_requests_that_people_send_are_read() -> None:
    """Long texts are one value, and a thousand parts are few."""
    parts = [MessagePart(text=TextPart(text="a,b" * 1000)) for _ in range(1000)]
    request = SendMessageRequest(session_id="ses_1", parts=parts)
    assert counted(SendMessageRequest)(request.SerializeToString()) == request


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x00" * (MAX_VALUES + 1),
        b"\x12\x02\x0a\x00" * (MAX_VALUES // 2 + 1),
        b"\x0a\x00" * (MAX_VALUES + 1),
        b"\xf8\x3f\x00" * (MAX_VALUES + 1),
        b"\xfa\x3f\x00" * (MAX_VALUES + 1),
        b"\xfb\x3f\xfc\x3f" * (MAX_VALUES + 1),
    ],
    ids=["parts", "parts with fields", "texts", "unknown numbers", "unknown bytes", "groups"],
)
def test_too_many_fields_are_refused(data: bytes) -> None:
    """Whatever they are, known or not."""
    with pytest.raises(InvalidRequest) as refused:
        counted(SendMessageRequest)(data)
    assert refused.value.metadata["limitValue"] == str(MAX_VALUES)


@given(st.binary(max_size=200))
def test_what_is_broken_is_never_counted_as_right(data: bytes) -> None:
    """The parser decides; the count raises nothing else than it does, and ends."""
    try:
        check_fields(SEND, data)
    except DecodeError:
        with pytest.raises(DecodeError):
            SendMessageRequest.FromString(data)


def test_depth_is_bounded() -> None:
    """A type that holds itself could go on for ever."""
    data = b""
    for _ in range(MAX_DEPTH):
        data = b"\x32" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data  # Value.list_value
        data = b"\x0a" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data
    with pytest.raises(DecodeError):
        check_fields(ListValue.DESCRIPTOR, data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"parts":[' + b"{}," * MAX_VALUES + b"{}]}",
        b"[" * (MAX_VALUES + 1),
        b'{"x":{' + b'"a":0,' * MAX_VALUES + b'"b":[]}}',
        b'["\\"",' * (MAX_VALUES + 1),
    ],
    ids=["objects", "depth", "names", "texts with quotes"],
)
def test_too_many_values_of_json_are_refused(data: bytes) -> None:
    """Before anything is parsed."""
    with pytest.raises(InvalidRequest) as refused:
        check_json(data)
    assert refused.value.metadata["limitValue"] == str(MAX_VALUES)


@pytest.mark.parametrize("text", [b"a,[{" * MAX_VALUES, b'\\\\,\\"[{' * MAX_VALUES, b"\\n," * MAX_VALUES])
def test_texts_are_not_values(text: bytes) -> None:
    """A text may have as many commas and brackets as it likes, and quotes that are escaped."""
    check_json(b'{"title":"' + text + b'"}')


def test_json_is_not_as_long_as_protobuf() -> None:
    """One byte more is refused."""
    check_json(b" " * MAX_JSON_BYTES)
    with pytest.raises(InvalidRequest):
        check_json(b" " * (MAX_JSON_BYTES + 1))
