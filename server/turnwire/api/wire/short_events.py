"""Durable events as they are stored: what their subject tells is left out, and filled in when they are replayed.

A short event is a byte that no frame begins with and an encoded SessionEvent with few fields: its sequence, its time,
the turn, and of the subject the id and what may be another later. Kinds without such a subject keep all their fields.
"""

from collections.abc import Callable, Iterable

from google.protobuf.message import DecodeError, Message

from opencode.event import session_event_pb2 as pb
from opencode.message import content_pb2 as content
from opencode.turn import turn_pb2
from turnwire.api.wire.answers import messages, times, tools, turns
from turnwire.api.wire.framing import frame
from turnwire.domain.conversation import events as e
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.turns import Turn
from turnwire.ports.codec import Subject

MARK = b"\x07"
"""The first byte of a short event: no tag begins with it, so neither a frame nor two short events look like one."""

_NOT_ENDED = frozenset({content.MESSAGE_STATUS_QUEUED, content.MESSAGE_STATUS_STREAMING})

_FACTS_OF_AN_END = ("finish_reason", "provider_finish_reason", "usage", "cost_pico_usd", "failure")
"""Fields of a message that are set when it ends, and of no message that was just added."""

_FACTS_OF_AN_ENDED_TURN = (
    *("finish_reason", "failure", "usage", "cost_pico_usd", "steps", "end_time", "end_sequence"),
    *("merged_into_turn_id", "ended_by_message_id"),
)

Found = m.Message | Turn | None


def shortened(event: e.Event, fill: Callable[[pb.SessionEvent, e.Event], None]) -> bytes:
    """Returns a durable event as it is stored. `fill` sets the field of a kind that leaves nothing out."""
    result = pb.SessionEvent(
        sequence=event.sequence,
        event_time=None if event.at is None else times.timestamp(event.at),
        turn_id=event.turn_id,
    )
    match event.kind:
        case e.MessageAdded(message, session_title):
            result.message_added.CopyFrom(pb.MessageAdded(message=_reference(message), session_title=session_title))
        case e.MessageReplaced(message):
            result.message_replaced.message.CopyFrom(_reference(message))
        case e.MessageFinished(message):
            result.message_finished.message.message_id = message.message_id
        case e.PartFinished(message_id, part):
            result.part_finished.message_id = message_id
            result.part_finished.part.index = part.index
        case e.ToolCallUpdated(message_id, _, part_index, _):
            result.tool_call_updated.message_id = message_id
            result.tool_call_updated.part_index = part_index
        case e.TurnStarted(turn):
            result.turn_id = turn.turn_id
            result.turn_started.SetInParent()
        case e.TurnEnded(turn):
            result.turn_id = turn.turn_id
            result.turn_ended.SetInParent()
        case _:
            fill(result, event)
    return MARK + result.SerializeToString()


def subject_of(short: bytes) -> Subject:
    """Returns what a short event leaves out; see `ports.codec.Codec.subject_of`."""
    event = parsed(short)
    match event.WhichOneof("kind"):
        case "message_added" | "message_replaced" as kind:
            message = getattr(event, kind).message
            return Subject(message.message_id, has_parts=bool(message.parts))
        case "message_finished":
            return Subject(event.message_finished.message.message_id)
        case "part_finished":
            return Subject(event.part_finished.message_id, event.part_finished.part.index)
        case "tool_call_updated":
            return Subject(event.tool_call_updated.message_id, event.tool_call_updated.part_index)
        case "turn_started" | "turn_ended":
            return Subject(turn_id=event.turn_id)
        case _:
            return Subject()


def filled(short: bytes, session_id: str, found: Found) -> bytes:
    """Returns a short event as a frame; see `ports.codec.Codec.fill_event`."""
    event = parsed(short)
    event.session_id = session_id
    kind = event.WhichOneof("kind")
    if kind == "message_added":
        _fill_message(event.message_added.message, found)
        _make_new(event.message_added.message)
    elif kind == "message_replaced":
        _fill_message(event.message_replaced.message, found)
    elif kind in _FILLED:
        if found is None:
            return b""
        _FILLED[kind](event, found)
    return frame(event.SerializeToString())


def parsed(short: bytes) -> pb.SessionEvent:
    """Returns the fields of a short event. Raises ValueError when it is none."""
    if short[:1] != MARK:
        raise ValueError("not a short event")
    try:
        event = pb.SessionEvent.FromString(short[1:])
    except DecodeError as error:
        raise ValueError(str(error)) from None
    if not event.WhichOneof("kind"):
        raise ValueError("not an event of a known kind")
    return event


def _reference(message: m.Message) -> content.SessionMessage:
    """Returns what is kept of a message: what it was when it was added, and whether it had parts."""
    return content.SessionMessage(
        message_id=message.message_id,
        type=messages.message_type(message.type),
        status=messages.message_status(message.status),
        parts=[content.Part()] if message.parts else (),
    )


def _fill_message(target: content.SessionMessage, found: Found) -> None:
    """Shows a message as it is now, with the status that it had. One that is gone has no parts."""
    if not isinstance(found, m.Message):
        target.ClearField("parts")
        return
    status, had_parts = target.status, bool(target.parts)
    target.CopyFrom(messages.message(found))
    target.status = status
    if not had_parts:
        target.ClearField("parts")
    if status in _NOT_ENDED:
        _clear(target, _FACTS_OF_AN_END)
    if status == content.MESSAGE_STATUS_QUEUED:
        target.ClearField("previous_message_id")


def _make_new(target: content.SessionMessage) -> None:
    """Takes out of a message that was still to end what came of it since."""
    if target.status in _NOT_ENDED and target.HasField("create_time"):
        target.update_time.CopyFrom(target.create_time)
        if target.HasField("model_run"):
            _clear(target.model_run, ("model_served", "response_id"))


def _clear(target: Message, names: Iterable[str]) -> None:
    for name in names:
        target.ClearField(name)


def _fill_finished(event: pb.SessionEvent, found: m.Message | Turn) -> None:
    if isinstance(found, m.Message):
        event.message_finished.message.CopyFrom(messages.message(found))
        event.message_finished.message.ClearField("parts")


def _fill_part(event: pb.SessionEvent, found: m.Message | Turn) -> None:
    if isinstance(found, m.Message):
        event.part_finished.part.CopyFrom(messages.part(found.parts[0]))


def _fill_call(event: pb.SessionEvent, found: m.Message | Turn) -> None:
    if isinstance(found, m.Message) and isinstance(call := found.parts[0].content, m.ToolUse):
        event.tool_call_updated.state.CopyFrom(tools.tool_call(found.parts[0].part_id, call))


def _fill_started(event: pb.SessionEvent, found: m.Message | Turn) -> None:
    if isinstance(found, Turn):
        event.turn_started.turn.CopyFrom(turns.turn(found))
        _clear(event.turn_started.turn, _FACTS_OF_AN_ENDED_TURN)
        event.turn_started.turn.status = turn_pb2.TURN_STATUS_RUNNING


def _fill_ended(event: pb.SessionEvent, found: m.Message | Turn) -> None:
    if isinstance(found, Turn):
        event.turn_ended.turn.CopyFrom(turns.turn(found))


_FILLED: dict[str | None, Callable[[pb.SessionEvent, m.Message | Turn], None]] = {
    "message_finished": _fill_finished,
    "part_finished": _fill_part,
    "tool_call_updated": _fill_call,
    "turn_started": _fill_started,
    "turn_ended": _fill_ended,
}
"""How the kinds are filled that tell nothing without their subject."""
