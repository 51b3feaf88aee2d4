"""opencode.message.MessageService."""

import sys
from typing import Any, cast

from opencode.message import message_pb2 as pb
from turnwire.api.services.messages import MessageService
from turnwire.core.intake.receipts import Receipt
from turnwire.domain.principal import ANONYMOUS


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
