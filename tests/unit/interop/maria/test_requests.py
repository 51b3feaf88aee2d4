"""Requests of a Maria client."""

import pytest

from opencode.message import content_pb2 as content
from opencode.message.message_pb2 import AbortSessionResponse
from turnwire.domain.errors import InvalidRequest
from turnwire.interop.maria import append_request, cancelled, send_request


def test_a_user_message_is_sent_with_its_parts() -> None:
    """Array parts stay parts."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = send_request("ses_1", {"role": "user", "content": parts}, "r1")
    assert (request.session_id, request.request_id) == ("ses_1", "r1")
    assert [part.text.text for part in request.parts] == ["a", "b"]


def test_other_messages_are_appended() -> None:
    """A tool message names its call by the provider's id."""
    system = append_request("ses_1", {"role": "system", "content": "be kind"}, "r1")
    assert (system.type, system.parts[0].text.text, system.request_id) == (content.MESSAGE_TYPE_SYSTEM, "be kind", "r1")
    tool = append_request("ses_1", {"role": "tool", "content": "sun", "tool_call_id": "c"})
    assert tool.type == content.MESSAGE_TYPE_TOOL_RESULT
    assert (tool.parts[0].tool_result.call_id, tool.parts[0].tool_result.output) == ("c", "sun")


def test_messages_go_where_they_belong() -> None:
    """Only a user message is answered; a client does not write what a model says."""
    with pytest.raises(InvalidRequest, match="append_request"):
        send_request("ses_1", {"role": "system", "content": "a"})
    with pytest.raises(InvalidRequest, match="import"):
        append_request("ses_1", {"role": "assistant", "content": "a"})


def test_a_cancel_names_what_it_dropped() -> None:
    """Next first; the second cancel dropped nothing."""
    assert cancelled(AbortSessionResponse(turn_id="t", dropped_message_ids=["a", "b"])) == {"dropped": ["a", "b"]}
    assert cancelled(AbortSessionResponse()) == {"dropped": []}
