"""plue_message_send."""

import pytest

from opencode.message import content_pb2 as content
from turnwire.interop.plue import PlueCode, PlueError, send_request


def test_text_and_attachments_are_stored_without_an_answer() -> None:
    """The request appends a user message; attachments are paths that the server reads."""
    request = send_request("ses_1", '{"text": "look", "attachments": [{"path": "a.py"}, {"path": "/b"}]}', "r1")
    assert (request.session_id, request.type, request.request_id) == ("ses_1", content.MESSAGE_TYPE_USER, "r1")
    assert [part.text.text or part.file.path for part in request.parts] == ["look", "a.py", "/b"]


def test_attachments_alone_are_a_message() -> None:
    """And so is text alone."""
    assert len(send_request("ses_1", '{"attachments": [{"path": "a.py"}]}').parts) == 1
    assert len(send_request("ses_1", '{"text": "a", "attachments": []}').parts) == 1


@pytest.mark.parametrize("text", ["", "{", "nothing", "[" * 100_000])
def test_bad_json_is_named(text: str) -> None:
    """With the code for it."""
    with pytest.raises(PlueError) as refused:
        send_request("ses_1", text)
    assert refused.value.code is PlueCode.JSON_PARSE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "message: must be an object, not an array"),
        ("{}", "message: needs text or attachments"),
        ('{"text": 1}', "message.text: must be text, not a number"),
        ('{"text": "a", "attachments": {}}', "message.attachments: must be an array, not an object"),
        ('{"attachments": ["a.py"]}', "message.attachments[0]: must be an object, not text"),
        ('{"attachments": [{}]}', "message.attachments[0].path: is missing"),
        ('{"attachments": [{"path": "a", "name": "b"}]}', "message.attachments[0].name: is not one of path"),
        ('{"text": "a", "role": "user"}', "message.role: is not one of text, attachments"),
    ],
)
def test_json_of_another_form_is_refused(text: str, message: str) -> None:
    """With the place that is wrong."""
    with pytest.raises(PlueError) as refused:
        send_request("ses_1", text)
    assert (refused.value.code, refused.value.message) == (PlueCode.INVALID_PARAM, message)
