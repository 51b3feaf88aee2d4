"""Values that are no objects in a request in JSON."""

import pytest

from opencode.message.message_pb2 import SendMessageRequest
from turnwire.api.web.encoding.objects import check_objects
from turnwire.domain.errors import InvalidRequest


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"[]", "request: must be a JSON object"),
        (b'"parts"', "request: must be a JSON object"),
        (b"null", "request: must be a JSON object"),
        (b'{"parts":["hi"]}', "parts[0]: must be a JSON object"),
        (b'{"parts":[{},{"text":"hi"}]}', "parts[1].text: must be a JSON object"),
        (b'{"model":{"provider":["x"]}}', "model.provider: must be a JSON object"),
        (b'{"parent_message_id":"x","busyPolicy":1,"model":5}', "model: must be a JSON object"),
        (b'{"model":', "request: is not JSON: Input data was truncated"),
        (b'{"temperature":NaN}', "request: is not JSON: JSON is malformed: invalid character (byte 15)"),
        (b"[" * 100_000, "request: is not JSON"),
    ],
)
def test_what_is_no_object_is_refused(data: bytes, problem: str) -> None:
    """The error names the field, as the contract spells it."""
    with pytest.raises(InvalidRequest) as caught:
        check_objects(SendMessageRequest.DESCRIPTOR, data)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"model":null,"parts":[{"text":{"text":"hi"}}]}',
        b'{"parts":{"not":"ours to say"}}',
        b'{"nobody_knows_it":[1,"x"],"settings":"nor this"}',
    ],
)
def test_the_rest_is_left_to_the_reader(data: bytes) -> None:
    """Null is what is absent, and fields that this server does not know may be anything."""
    check_objects(SendMessageRequest.DESCRIPTOR, data)
