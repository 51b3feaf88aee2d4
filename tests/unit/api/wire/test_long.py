"""Answers with long messages are the same bytes' worth, made later."""

import msgspec
import pytest

from opencode.message import message_pb2
from opencode.message.content_pb2 import SessionMessage
from opencode.turn import turn_service_pb2
from tests.support.fakes.domain_values import make_message, make_part
from turnwire.api.wire.answers import messages
from turnwire.api.wire.long import LONG_CHARACTERS, encoded, text_length, with_messages
from turnwire.domain.conversation.messages import (
    Content,
    File,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)

LONG = "é" * (LONG_CHARACTERS + 1)

CONTENTS: list[Content] = [
    Text(LONG),
    Text(""),
    Reasoning(LONG),
    Refusal(LONG),
    File(sha256="ab", size_bytes=3, mime="m/m"),
    ToolUse(name="look", call_id="c", input_json=LONG),
    ToolUse(name="look", call_id="c", input_json="{}", output=LONG, status=ToolStatus.SUCCESS, logs=("a",)),
    ToolUse(name="look", call_id="c", input_json="{}", output="", status=ToolStatus.SUCCESS),
    ToolResult(call_id="c", output=LONG, is_error=True),
    ProviderContent("kind"),
]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: type(content).__name__)
def test_a_long_message_is_encoded_as_any(content: Content) -> None:
    """Whatever its parts hold; each of them stands beside a long text."""
    parts = (make_part(0, Text(LONG)), make_part(1, content))
    message = msgspec.structs.replace(make_message("msg_1", LONG), parts=parts)
    assert SessionMessage.FromString(encoded(message)) == messages.message(message)


def test_a_short_message_is_left_to_protobuf() -> None:
    """The bytes are those of its own encoding."""
    message = make_message("msg_1", "short")
    assert encoded(message) == messages.message(message).SerializeToString()
    assert text_length((message, message)) == 2 * len("short")


def test_an_answer_with_a_long_message_is_made_later() -> None:
    """It tells about how large it will be; short ones are made at once."""
    long, short = make_message("msg_1", LONG), make_message("msg_2", "short")
    unmade = with_messages((long,), message_pb2.GetMessageResponse(), "message")
    wanted = message_pb2.GetMessageResponse(message=messages.message(long))
    assert message_pb2.GetMessageResponse.FromString(unmade.make()) == wanted
    assert unmade.answer_bytes >= len(LONG.encode())
    made = with_messages((short,), message_pb2.GetMessageResponse(), "message")
    assert made == message_pb2.GetMessageResponse(message=messages.message(short))


def test_lists_have_their_messages_in_order() -> None:
    """Beside what else the answer says."""
    found = (make_message("msg_1", "short"), make_message("msg_2", LONG), make_message("msg_3", "short"))
    wanted = turn_service_pb2.ListQueueResponse(messages=map(messages.message, found), revision=7)
    unmade = with_messages(found, turn_service_pb2.ListQueueResponse(revision=7))
    assert turn_service_pb2.ListQueueResponse.FromString(unmade.make()) == wanted
    made = with_messages(found[:1], turn_service_pb2.ListQueueResponse(revision=7))
    assert made == turn_service_pb2.ListQueueResponse(messages=[messages.message(found[0])], revision=7)
