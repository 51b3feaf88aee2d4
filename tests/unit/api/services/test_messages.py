"""opencode.message.MessageService."""

import sys
from typing import Any, cast

import pytest

from opencode.message import message_pb2 as pb
from turnwire.api.services.messages import MessageService
from turnwire.core.intake.requests import Receipt
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.principal import ANONYMOUS, BUILT_IN


async def test_a_stream_keeps_nothing_of_its_message() -> None:
    """It may have megabytes, and the turn may take an hour."""
    given = list[Any]()

    class Conversations:
        async def send(self, _principal: object, message: Any, turn: Any) -> Receipt:
            given.extend((message, turn))
            return Receipt(session_id="ses_1", message_id="msg_1", turn_id="trn_1")

    class Watches:
        class tokens:
            @staticmethod
            def give(*_: object) -> str:
                return "token"

    request = pb.StreamMessageRequest(
        message=pb.SendMessageRequest(parts=[pb.MessagePart(text=pb.TextPart(text="hello"))])
    )
    given.append(request)
    service = MessageService(cast("Any", Conversations()), cast("Any", Watches()), cast("Any", None))
    answers = service.StreamMessage(ANONYMOUS, request)
    del request
    assert (await anext(answers)).accepted.turn_id == "trn_1"
    assert [sys.getrefcount(one) for one in given] == [sys.getrefcount(one) for one in [object(), object(), object()]]
    await answers.aclose()


@pytest.mark.parametrize(
    ("method", "request_", "missing"),
    [
        ("GetMessages", pb.GetMessagesRequest(), ["session_id"]),
        ("AbortSession", pb.AbortSessionRequest(), ["session_id"]),
        ("ListMessages", pb.ListMessagesRequest(), ["session_id"]),
        ("GetMessage", pb.GetMessageRequest(), ["session_id", "message_id"]),
        ("GetMessage", pb.GetMessageRequest(session_id="ses_1"), ["message_id"]),
    ],
)
async def test_what_a_request_is_about_is_named(method: str, request_: Any, missing: list[str]) -> None:
    """Else nothing is asked: an id that is left out is a mistake of the client, and not a message that is missing."""
    unused: Any = None
    with pytest.raises(InvalidRequest) as caught:
        await getattr(MessageService(unused, unused, unused), method)(BUILT_IN, request_)
    assert [(one.field, one.reason) for one in caught.value.violations] == [(name, "REQUIRED") for name in missing]
