"""The fold of the tests obeys the rules of events that the server does not send yet."""

import pytest

from opencode.event import session_event_pb2 as pb
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_QUEUED,
    PART_STATUS_COMPLETE,
    PART_STATUS_STREAMING,
    Part,
    SessionMessage,
    TextContent,
)
from opencode.turn.turn_pb2 import Turn
from tests.support.oracles.fold import SessionFold


def _message(message_id: str, text: str = "", **fields: object) -> SessionMessage:
    part = Part(part_id=f"prt_{message_id}", text=TextContent(text=text), content_bytes=len(text.encode()))
    return SessionMessage(message_id=message_id, parts=[part], **fields)


def _fold() -> SessionFold:
    """A client that holds three messages and two that wait."""
    waiting = [_message(name, status=MESSAGE_STATUS_QUEUED) for name in ("w1", "w2")]
    return SessionFold("ses_1", 5, [*(_message(name, name) for name in ("a", "b", "c")), *waiting])


def _happens(fold: SessionFold, **kind: object) -> None:
    fold.apply(pb.SessionEvent(session_id="ses_1", sequence=fold.head + 1, **kind))


def _ids(fold: SessionFold) -> list[str]:
    return [message.message_id for message in fold.listed()]


def _grow(fold: SessionFold, offset: int, text: str) -> None:
    delta = pb.PartDelta(message_id="a", offset=offset, text=text, end_offset=offset + len(text.encode()))
    fold.apply(pb.SessionEvent(session_id="ses_1", part_delta=delta))


@pytest.mark.parametrize(
    ("kept", "left"),
    [("b", ["a", "b", "w1", "w2"]), ("c", ["a", "b", "c", "w1", "w2"]), (None, ["w1", "w2"]), ("gone", ["w1", "w2"])],
)
def test_a_changed_conversation_drops_what_is_behind_what_stays(kept: str | None, left: list[str]) -> None:
    """All of it when nothing stays or what stays is not held; never what waits."""
    fold = _fold()
    _happens(fold, conversation_changed=pb.ConversationChanged(kept_through_message_id=kept))
    assert (_ids(fold), fold.rereads) == (left, 0)


def test_a_conversation_with_other_messages_is_read_again() -> None:
    """The event says so."""
    fold = _fold()
    _happens(fold, conversation_changed=pb.ConversationChanged(reread=True))
    assert fold.rereads == 1


def test_a_replaced_message_keeps_its_place() -> None:
    """With other parts; text that streamed into the old ones is forgotten. One that is not held is skipped."""
    fold = _fold()
    _grow(fold, 1, "bc")
    _happens(fold, message_replaced=pb.MessageReplaced(message=_message("a", "new")))
    _happens(fold, message_replaced=pb.MessageReplaced(message=_message("x", "new")))
    assert _ids(fold) == ["a", "b", "c", "w1", "w2"]
    assert fold.text("a") == "new"


def test_a_steered_message_moves_behind_the_conversation() -> None:
    """It does not wait any more."""
    fold = _fold()
    _happens(fold, turn_id="trn_2", turn_steered=pb.TurnSteered(user_message_id="w2", into_turn_id="trn_1"))
    assert _ids(fold) == ["a", "b", "c", "w2", "w1"]
    assert fold.messages["w2"].status == MESSAGE_STATUS_COMPLETE
    assert (fold.messages["w2"].previous_message_id, fold.messages["w1"].previous_message_id) == ("c", "")


def test_the_first_message_of_a_turn_keeps_the_one_before_it() -> None:
    """Only a message that waited gets another one."""
    fold = _fold()
    _happens(fold, message_added=pb.MessageAdded(message=_message("d", previous_message_id="c")))
    turn = Turn(turn_id="trn_1", user_message_id="d", start_sequence=fold.head + 1)
    _happens(fold, turn_id="trn_1", turn_started=pb.TurnStarted(turn=turn))
    assert fold.messages["d"].previous_message_id == "c"


def test_deltas_are_joined_by_bytes() -> None:
    """Behind what is held, over its end, within it; never into a hole."""
    fold = _fold()
    _grow(fold, 1, "é")
    _grow(fold, 1, "é🎈")
    _grow(fold, 1, "é")
    assert (fold.text("a"), fold.messages["a"].parts[0].content_bytes, fold.waited) == ("aé🎈", 7, 0)
    _grow(fold, 9, "x")
    assert (fold.text("a"), fold.waited) == ("aé🎈", 1)


def test_a_part_that_was_lost_with_a_server_goes_when_its_message_ends() -> None:
    """What only streamed and never finished is not in the message; another part may take its place."""
    fold = _fold()
    streaming = {"status": PART_STATUS_STREAMING, "text": TextContent(text="lost")}
    for index in (1, 2):
        part = Part(part_id=f"prt_lost{index}", index=index, **streaming)
        fold.apply(pb.SessionEvent(session_id="ses_1", part_started=pb.PartStarted(message_id="a", part=part)))
    part = Part(part_id="prt_new", index=1, status=PART_STATUS_COMPLETE, text=TextContent(text=" new"))
    _happens(fold, part_finished=pb.PartFinished(message_id="a", part=part))
    _happens(fold, message_finished=pb.MessageFinished(message=SessionMessage(message_id="a")))
    assert fold.text("a") == "a new"
