"""What the log keeps of an event: what happened to which message or turn. These say the rest, as they are now."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, get_args

import msgspec

from turnwire.domain.conversation import events as e
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ToolUse
from turnwire.domain.conversation.sessions import begun, first_words_of
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.storage.sqlite.message_rows import encode

_NOT_ENDED = frozenset({MessageStatus.QUEUED, MessageStatus.STREAMING})


class Facts(NamedTuple):
    """The columns of an event that say what happened."""

    kind: str
    """Name of the event's class."""
    message_id: str
    """The message whose row says the rest; "" when none does."""
    facts: bytes
    """What no other row says, as JSON."""


class Published(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as it was published: what may be another later."""

    type: MessageType
    status: MessageStatus
    has_parts: bool
    session_title: str = ""
    """Of a `MessageAdded`: the title that the session got with it."""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session as it was published."""

    view: e.SessionView
    first_words: str = ""
    """Those of the session, of which the view has none."""


class Place(msgspec.Struct, frozen=True):
    """Where in a message something happened."""

    part_index: int


_published = msgspec.json.Decoder(Published).decode
_seen_of = msgspec.json.Decoder(Seen).decode
_place = msgspec.json.Decoder(Place).decode

_WHOLE: dict[str, Callable[[bytes], e.DurableKind]] = {
    kind.__name__: msgspec.json.Decoder(kind).decode
    for kind in get_args(e.DurableKind)
    if kind
    not in (
        *(e.MessageAdded, e.MessageReplaced, e.MessageFinished, e.PartFinished, e.ToolCallUpdated),
        *(e.TurnStarted, e.TurnEnded),
    )
}
"""Reads the kinds that have no row of their own: all that they say is a fact."""


def facts_of(kind: e.DurableKind) -> Facts:
    """Returns what the log keeps of an event."""
    message_id, facts = "", b""
    match kind:
        case e.MessageAdded(message) | e.MessageReplaced(message):
            message_id = message.message_id
            title = kind.session_title if isinstance(kind, e.MessageAdded) else ""
            facts = encode(Published(message.type, message.status, bool(message.parts), title))
        case e.MessageFinished(message):
            message_id = message.message_id
        case e.PartFinished(message_id, part):
            facts = encode(Place(part.index))
        case e.ToolCallUpdated(message_id, _, part_index, _):
            facts = encode(Place(part_index))
        case e.TurnStarted() | e.TurnEnded():
            pass
        case e.SessionCreated(view) | e.SessionUpdated(view):
            facts = encode(_seen(view))
        case _:
            facts = encode(kind)
    return Facts(type(kind).__name__, message_id, facts)


def is_of_turn(kind: str) -> bool:
    """Returns whether the row of its turn says the rest of an event."""
    return kind in (e.TurnStarted.__name__, e.TurnEnded.__name__)


def kind_of(stored: Facts, session_id: str, at: datetime, subject: Message | Turn | None) -> e.DurableKind | None:
    """Returns what happened, with its subject as it is now.

    Args:
        stored: What the log has.
        session_id: The session.
        at: When it happened.
        subject: The message or the turn; None when it is gone, or there is none.

    Returns:
        None when nothing can be shown without the subject.

    Raises:
        ValueError: the log is damaged (`msgspec.DecodeError`).
    """
    if (read := _WHOLE.get(stored.kind)) is not None:
        kind = read(stored.facts)
        return _with_first_words(kind, stored) if isinstance(kind, e.SessionCreated | e.SessionUpdated) else kind
    if isinstance(subject, Turn):
        return e.TurnStarted(_begun(subject)) if stored.kind == e.TurnStarted.__name__ else e.TurnEnded(subject)
    if stored.kind in (e.MessageAdded.__name__, e.MessageReplaced.__name__):
        facts = _published(stored.facts)
        message = _as_published(facts, stored.message_id, session_id, at, subject)
        is_new = stored.kind == e.MessageAdded.__name__
        return e.MessageAdded(_new(message), facts.session_title) if is_new else e.MessageReplaced(message)
    return None if subject is None else _of_message(stored, subject)


def _seen(view: e.SessionView) -> Seen:
    """Returns a view without the tools of the session, which may be large and which no event shows."""
    session = msgspec.structs.replace(view.session.without_first_words(), tools=())
    return Seen(msgspec.structs.replace(view, session=session), first_words_of(view.session))


def _with_first_words(kind: e.SessionCreated | e.SessionUpdated, stored: Facts) -> e.DurableKind:
    session = begun(kind.view.session, _seen_of(stored.facts).first_words)
    return type(kind)(msgspec.structs.replace(kind.view, session=session))


def _of_message(stored: Facts, message: Message) -> e.DurableKind | None:
    if stored.kind == e.MessageFinished.__name__:
        return e.MessageFinished(msgspec.structs.replace(message, parts=()))
    return _of_part(stored, message)


def _of_part(stored: Facts, message: Message) -> e.DurableKind | None:
    index = _place(stored.facts).part_index
    if index >= len(message.parts):
        return None
    part = message.parts[index]
    if stored.kind == e.PartFinished.__name__:
        return e.PartFinished(message.message_id, part)
    if not isinstance(part.content, ToolUse):
        return None
    return e.ToolCallUpdated(message.message_id, part.part_id, index, part.content)


def _as_published(facts: Published, message_id: str, session_id: str, at: datetime, subject: Message | None) -> Message:
    """Returns a message as it is now, with the status that it had. One that is gone has no parts."""
    if subject is None:
        return Message(
            message_id=message_id,
            session_id=session_id,
            type=facts.type,
            status=facts.status,
            created_at=at,
            updated_at=at,
        )
    message = msgspec.structs.replace(subject, status=facts.status, parts=subject.parts if facts.has_parts else ())
    if facts.status in _NOT_ENDED:  # what is set when a message ends
        message = msgspec.structs.replace(
            message, finish_reason=None, provider_finish_reason="", usage=None, cost_pico_usd=None, failure=None
        )
    if facts.status is MessageStatus.QUEUED:
        message = msgspec.structs.replace(message, previous_message_id="")
    return message


def _new(message: Message) -> Message:
    """Takes out of a message that was still to end what came of it since."""
    if message.status not in _NOT_ENDED:
        return message
    run = message.model_run
    if run is not None:
        run = msgspec.structs.replace(run, model_served="", response_id="")
    return msgspec.structs.replace(message, updated_at=message.created_at, model_run=run)


def _begun(turn: Turn) -> Turn:
    """Returns a turn as it was when it began."""
    return msgspec.structs.replace(
        turn,
        status=TurnStatus.RUNNING,
        finish_reason=None,
        failure=None,
        usage=None,
        cost_pico_usd=None,
        steps=0,
        ended_at=None,
        end_sequence=0,
        merged_into_turn_id="",
        ended_by_message_id="",
    )
