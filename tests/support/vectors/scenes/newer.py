"""Things that a newer server may send. They are added to a real stream, so what is wanted is worked out here."""

from pathlib import Path

from opencode.event.session_event_pb2 import MessageAdded, SessionEvent
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    PART_STATUS_COMPLETE,
    Part,
    SessionMessage,
    TextContent,
)
from tests.support.oracles.fold import compared
from tests.support.vectors.recording import Recording, Want
from tests.support.vectors.stage import say, taped

UNKNOWN_KIND = 999
UNKNOWN_CONTENT = 500
"""Numbers of fields that no contract of today has."""


async def unknown_things(folder: Path) -> dict[str, Recording]:
    """A real conversation with more in it."""
    async with taped(folder) as tape:
        await say(tape, "one")
        await say(tape, "two")
        known = await tape.recorded("")
        events, session_id = known.watches[0], tape.session_id
        head = max(event.sequence for event in events)
        place = next(n for n, event in enumerate(events) if event.HasField("turn_ended")) + 1
        more = [*events[:place], _newer(session_id), *events[place:], _newer(session_id, sequence=head + 1)]
        asks = [*events[:place], _newer(session_id, reread=True)]
        message = _odd_message(session_id)
        added = SessionEvent(session_id=session_id, sequence=head + 1, message_added=MessageAdded(message=message))
        want = _copy(known.want)
        want.messages += compared([message])
        return {
            "unknown-kind": Recording(
                "Events of kinds that no server of today sends are skipped, and their sequence counts.",
                [more],
                _copy(known.want),
            ),
            "unknown-kind-reread": Recording(
                "An event of a kind that no server of today sends asks the client to read the list.",
                [asks],
                Want(needs_reread=True),
            ),
            "unknown-values": Recording(
                "A message as no server of today sends it: unknown type, finish reason and content.",
                [[*events, added]],
                want,
            ),
        }


def _newer(session_id: str, *, sequence: int = 0, reread: bool = False) -> SessionEvent:
    """Returns an event of an unknown kind."""
    body = b"\x0a\x03new"
    tag = UNKNOWN_KIND << 3 | 2  # length-delimited
    event = SessionEvent(session_id=session_id, sequence=sequence, reread_if_unknown=reread)
    return SessionEvent.FromString(event.SerializeToString() + bytes((tag & 0x7F | 0x80, tag >> 7, len(body))) + body)


def _odd_message(session_id: str) -> SessionMessage:
    tag = UNKNOWN_CONTENT << 3 | 2
    unknown = Part(part_id="prt_odd", status=PART_STATUS_COMPLETE).SerializeToString()
    unknown += bytes((tag & 0x7F | 0x80, tag >> 7, 3)) + b"new"
    known = Part(
        part_id="prt_known", index=1, status=PART_STATUS_COMPLETE, text=TextContent(text="known"), content_bytes=5
    )
    return SessionMessage(
        message_id="msg_odd",
        session_id=session_id,
        type=77,  # type: ignore[arg-type]
        status=MESSAGE_STATUS_COMPLETE,
        parts=[Part.FromString(unknown), known],
        finish_reason=88,  # type: ignore[arg-type]
    )


def _copy(want: Want) -> Want:
    """Returns a copy that can be renamed by itself."""
    copied = Want(status=want.status, deleted=want.deleted)
    copied.messages = compared(want.messages)
    copied.waiting = list(want.waiting)
    if want.session is not None:
        copied.session = type(want.session)()
        copied.session.CopyFrom(want.session)
    return copied


SCENES = (unknown_things,)
