"""The constant part of an event: a replay may show its subject as it is now, and all else stays."""

from opencode.event.session_event_pb2 import SessionEvent


def facts(event: SessionEvent) -> bytes:
    """Returns the bytes of an event without what a later replay may tell otherwise: its subject, but for its ids."""
    kept = SessionEvent()
    kept.CopyFrom(event)
    match event.WhichOneof("kind"):
        case "message_added" | "message_replaced" | "message_finished" as kind:
            message = getattr(kept, kind).message
            message_id = message.message_id
            message.Clear()
            message.message_id = message_id
        case "part_finished":
            index = kept.part_finished.part.index
            kept.part_finished.part.Clear()
            kept.part_finished.part.index = index
        case "tool_call_updated":
            kept.tool_call_updated.state.Clear()
        case "turn_started" | "turn_ended" as kind:
            getattr(kept, kind).turn.Clear()
    return kept.SerializeToString(deterministic=True)
