"""Which end of an answer the chat waits for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from opencode.event.session_event_pb2 import PartFinished, SessionEvent, TurnEnded
from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT, Part, SessionMessage, TextContent
from opencode.message.message_pb2 import SendMessageResponse
from opencode.turn.turn_pb2 import TURN_STATUS_ENDED, Turn
from turnwire.cli.chat.prompt import Chat
from turnwire_client import Conversation, Update

ENDED = Turn(turn_id="t", status=TURN_STATUS_ENDED, end_sequence=3)


class Updates:
    """The conversation read anew at a place, and what comes behind it."""

    def __init__(self) -> None:
        self.conversation = Conversation("s")
        answer = SessionMessage(message_id="m", type=MESSAGE_TYPE_ASSISTANT, turn_id="t")
        self.conversation.reset([answer], sequence=1, resume_token="")

    def __iter__(self) -> Iterator[Update]:
        """Yields them."""
        yield Update(self.conversation)
        part = PartFinished(message_id="m", part=Part(text=TextContent(text="All of it")))
        for event in (
            SessionEvent(session_id="s", sequence=2, part_finished=part),
            SessionEvent(session_id="s", sequence=3, turn_ended=TurnEnded(turn=ENDED)),
        ):
            self.conversation.apply(event)
            yield Update(self.conversation, event)


class Client:
    """A client whose turn has ended as soon as it is asked for."""

    def send(self, *_: object, **__: object) -> SendMessageResponse:
        """Stores a message."""
        return SendMessageResponse(session_id="s", turn_id="t")

    @contextmanager
    def watch(self, *_: object, **__: object) -> Iterator[Updates]:
        """Follows the session."""
        yield Updates()

    def turn(self, *_: object) -> Turn:
        """Reads the turn."""
        return ENDED


def test_an_answer_that_ends_while_it_is_read_anew_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """The turn is read later than the list: what the model said in between comes with the events behind the list."""
    client: Any = Client()
    assert Chat(client, "s", "").answer("Hello") == 0
    assert "All of it" in capsys.readouterr().out
