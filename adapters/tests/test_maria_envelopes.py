"""Envelopes of events that a server sends seldom, or not yet."""

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from opencode.turn.turn_pb2 import QueueEntry, Turn
from turnwire_adapters.maria.envelopes import QUEUE, Envelopes
from turnwire_adapters.maria.ids import session_id_of, uuid_of


def _waiting(message_id: str, words: str = "hello") -> pb.SessionMessage:
    text = pb.Part(text=pb.TextContent(text=words), status=pb.PART_STATUS_COMPLETE)
    return pb.SessionMessage(
        message_id=message_id,
        turn_id=f"trn_{message_id}",
        type=pb.MESSAGE_TYPE_USER,
        status=pb.MESSAGE_STATUS_QUEUED,
        parts=[text],
    )


def _event(sequence: int, session_id: str = "ses_1", turn_id: str = "", **kind: Any) -> SessionEvent:
    return SessionEvent(sequence=sequence, session_id=session_id, turn_id=turn_id, **kind)


def _names(envelopes: list[dict[str, Any]]) -> list[str]:
    return [envelope["msg"] for envelope in envelopes]


def test_what_is_not_behind_the_place_is_skipped() -> None:
    """Events that the list had already, hints, and those of other sessions."""
    envelopes = Envelopes("ses_1", sequence=4)
    added = {"message_added": {"message": _waiting("a")}}
    assert envelopes.apply(_event(4, **added)) == []
    assert envelopes.apply(_event(0, **added)) == []
    assert envelopes.apply(_event(5, "ses_2", **added)) == []
    assert _names(envelopes.apply(_event(5, **added))) == ["MessageQueued", QUEUE]
    assert envelopes.apply(_event(5, **added)) == []


def test_unknown_events_give_nothing() -> None:
    """A newer server may send them."""
    assert Envelopes("ses_1").apply(SessionEvent(sequence=1, session_id="ses_1")) == []


def test_a_moved_message_gives_a_snapshot() -> None:
    """In the new order; the same order gives none."""
    envelopes = Envelopes("ses_1", [_waiting("a"), _waiting("b")], 1)
    entries = [QueueEntry(message_id="b"), QueueEntry(message_id="a"), QueueEntry(message_id="unknown")]
    [snapshot] = envelopes.apply(_event(2, queue_changed={"entries": entries}))
    assert [entry["id"] for entry in snapshot["queued_messages"]] == ["b", "a"]
    assert envelopes.apply(_event(3, queue_changed={"entries": entries})) == []


def test_an_edited_message_gives_a_snapshot() -> None:
    """Only while it waits."""
    envelopes = Envelopes("ses_1", [_waiting("a")], 1)
    [snapshot] = envelopes.apply(_event(2, message_replaced={"message": _waiting("a", "goodbye")}))
    assert snapshot["queued_messages"][0]["message"]["content"] == "goodbye"
    assert envelopes.apply(_event(3, message_replaced={"message": _waiting("b")})) == []


def test_a_steered_message_joins_the_running_conversation() -> None:
    """Without another PreConversation."""
    envelopes = Envelopes("ses_1", [_waiting("a")], 1)
    steered = envelopes.apply(_event(2, turn_steered={"user_message_id": "a", "into_turn_id": "t"}))
    assert _names(steered) == ["MessageUnqueued", QUEUE, "MessageAdded"]


def test_a_dropped_turn_never_was_a_conversation() -> None:
    """Its end is no PostConversation; that of a turn that ran is."""
    envelopes = Envelopes("ses_1", [_waiting("a")], 1)
    assert _names(envelopes.apply(_event(2, message_removed={"message_id": "a"}))) == ["MessageUnqueued", QUEUE]
    assert envelopes.apply(_event(3, turn_id="trn_a", turn_ended={"turn": Turn()})) == []
    ran = Turn(start_time=Timestamp(seconds=1))
    assert _names(envelopes.apply(_event(4, turn_id="trn_b", turn_ended={"turn": ran}))) == ["PostConversation"]


def test_a_message_that_is_answered_late_does_not_join_again() -> None:
    """It is part of the conversation already: only what follows is told, and nothing if its turn is dropped."""
    envelopes = Envelopes("ses_1", sequence=1)
    started = {"turn_started": {"turn": Turn(turn_id="t", user_message_id="a")}}
    assert _names(envelopes.apply(_event(2, turn_id="t", **started))) == ["PreConversation"]
    assert envelopes.apply(_event(3, turn_id="u", turn_ended={"turn": Turn(user_message_id="b")})) == []


def test_a_call_is_announced_once_it_may_run() -> None:
    """Not while a person is asked; arguments that are no JSON are shown as they are."""
    envelopes = Envelopes("ses_1")
    answer = pb.SessionMessage(message_id="m", type=pb.MESSAGE_TYPE_ASSISTANT, status=pb.MESSAGE_STATUS_STREAMING)
    call = ToolCallState(id="p", name="look", status="pending", input_json="{cut")
    part = pb.Part(index=0, status=pb.PART_STATUS_COMPLETE, tool_use=call)
    envelopes.apply(_event(1, message_added={"message": answer}))
    assert envelopes.apply(_event(2, part_finished={"message_id": "m", "part": part})) == []
    answer.status = pb.MESSAGE_STATUS_COMPLETE
    [completed] = envelopes.apply(_event(3, message_finished={"message": answer}))
    assert (completed["msg"], completed["usage"]) == ("RequestCompleted", None)

    def updated(sequence: int, **state: Any) -> list[dict[str, Any]]:
        now = ToolCallState(id="p", name="look", input_json="{cut", started_at=1, **state)
        return envelopes.apply(_event(sequence, tool_call_updated={"message_id": "m", "part_index": 0, "state": now}))

    assert updated(4, status="pending", permission_id="per_1") == []
    [announced] = updated(5, status="running")
    assert (announced["msg"], announced["args"]) == ("PreToolCall", "{cut")
    assert _names(updated(6, status="error", error="no")) == ["PostToolCall", "MessageAdded"]


@pytest.mark.parametrize(
    ("written", "args"),
    [
        ('{"n": 1.50, "m": 12345678901234567890123}', {"n": 1.5, "m": 12345678901234567890123}),
        ("[" * 100_000 + "]" * 100_000, ...),
        ("1" * 5000, ...),
        ('{"n": NaN}', ...),
        ('{"n": 1e999}', ...),
        ('"\\ud800"', ...),
        ("", ...),
    ],
)
def test_arguments_that_few_can_read_are_text(written: str, args: Any) -> None:
    """A model may write anything: no envelope is lost, and each one is JSON."""
    call = ToolCallState(id="p", name="look", status="error", error="no", input_json=written, started_at=1)
    answer = pb.SessionMessage(
        message_id="m",
        type=pb.MESSAGE_TYPE_ASSISTANT,
        status=pb.MESSAGE_STATUS_COMPLETE,
        parts=[pb.Part(tool_use=call)],
    )
    envelopes = Envelopes("ses_1")
    envelopes.apply(_event(1, message_added={"message": answer}))
    told = envelopes.apply(_event(2, message_finished={"message": answer}))
    assert _names(told) == ["RequestCompleted", "PreToolCall", "PostToolCall", "MessageAdded"]
    assert [envelope["args"] for envelope in told[1:3]] == [written if args is ... else args] * 2
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_results_of_before_are_not_told_again() -> None:
    """A subscription begins behind the calls that are settled when it lists the messages."""
    parts = [
        pb.Part(index=0, tool_use=ToolCallState(id="p0", status="success", output="0", started_at=1)),
        pb.Part(index=1, tool_use=ToolCallState(id="p1", status="pending", started_at=1)),
    ]
    answer = pb.SessionMessage(
        message_id="m", type=pb.MESSAGE_TYPE_ASSISTANT, status=pb.MESSAGE_STATUS_COMPLETE, parts=parts
    )
    envelopes = Envelopes("ses_1", [answer], 1)
    settled = ToolCallState(id="p1", status="success", output="1", started_at=1)
    told = envelopes.apply(_event(2, tool_call_updated={"message_id": "m", "part_index": 1, "state": settled}))
    assert _names(told) == ["PreToolCall", "PostToolCall", "MessageAdded"]
    assert told[1]["result"] == "1"


def test_ids_are_uuids_both_ways() -> None:
    """With the same digits; an id of another form stays as it is."""
    uuid = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
    assert uuid_of("ses_0190a1b2c3d47e5f8a9b0c1d2e3f4a5b") == uuid == uuid_of("msg_0190a1b2c3d47e5f8a9b0c1d2e3f4a5b")
    assert session_id_of(uuid.upper()) == "ses_0190a1b2c3d47e5f8a9b0c1d2e3f4a5b"
    assert (uuid_of("ses_x"), session_id_of("ses_x")) == ("ses_x", "ses_x")
