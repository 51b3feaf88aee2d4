"""The events of a commit: their numbers and their frames."""

import sqlite3
from collections.abc import Iterator

import msgspec

from turnwire.domain.conversation.events import (
    ConversationChange,
    ConversationChanged,
    DurableKind,
    Event,
    MessageAdded,
    MessageFinished,
    MessageReplaced,
    QueueChanged,
    SessionUpdated,
    SessionView,
    TurnEnded,
    TurnStarted,
    TurnSteered,
)
from turnwire.domain.conversation.sessions import begun
from turnwire.ports.codec import Codec
from turnwire.ports.commit import Commit, NewEvent, PutMessage
from turnwire.ports.store import StoredEvent, Watched
from turnwire.storage.sqlite.log.facts import facts_of
from turnwire.storage.sqlite.reading.rows import moment
from turnwire.storage.sqlite.writing.archived import mark_events
from turnwire.storage.sqlite.writing.queue import queue_changed
from turnwire.storage.sqlite.writing.turns import add_turns, note_end, note_start
from turnwire.storage.sqlite.writing.unit import Unit, microseconds


def numbered_events(unit: Unit, commit: Commit, codec: Codec, position: int, is_watched: Watched) -> list[StoredEvent]:
    """Returns the events of a commit, after its changes, and adds their rows, and those of its turns, to `unit.rows`.

    Frames for watchers are made here, on the writer's thread, because an event may be of many megabytes; where nobody
    watches, none are made. Who begins to watch now gets what is published next encoded by the feed.

    Args:
        unit: The commit, with what its changes have found out.
        commit: The same.
        codec: Makes the frames.
        position: Of the first event.
        is_watched: Says whether frames are needed.
    """
    watched = bool(commit.events) and is_watched(unit.session.tenant, commit.session_id)
    stored = list[StoredEvent]()
    at_us = microseconds(commit.at)
    events = (*_events_of(unit, commit), *mark_events(unit, commit))
    first = unit.session.head_sequence + 1
    for sequence, new in enumerate(events, first):
        if isinstance(new.kind, TurnStarted):
            note_start(unit, new.kind.turn.turn_id, sequence)
        elif isinstance(new.kind, TurnEnded):
            note_end(unit, new.kind.turn.turn_id, sequence)
    add_turns(unit)
    for sequence, new in enumerate(events, first):
        event = Event(
            session_id=commit.session_id,
            kind=_placed(unit, _numbered(unit, new.kind, sequence)),
            at=commit.at,
            turn_id=new.turn_id,
            sequence=sequence,
            position=position + sequence - first,
        )
        frame = codec.encode_event(event) if watched else None
        stored.append(StoredEvent(event, frame, unit.session.tenant))
        kept = facts_of(event.kind)  # type: ignore[arg-type]  # a durable one
        unit.added_bytes += len(kept.facts)
        row = (event.position, commit.session_id, sequence, at_us, new.turn_id, *kept, unit.session.tenant)
        unit.rows.events.append(row)
    return stored


def _events_of(unit: Unit, commit: Commit) -> Iterator[NewEvent]:
    """Yields the events of a commit, with what the path adds to them and without what did not happen.

    A message that waited joins the path without another event; when it has alternatives, an event behind it says so.
    """
    seen = set[str]()
    for new in commit.events:
        kind = new.kind
        if isinstance(kind, ConversationChanged) and _is_same_path(unit, kind):
            continue
        yield new
        if isinstance(kind, MessageAdded | MessageReplaced):
            seen.add(kind.message.message_id)
        joined = kind.turn.user_message_id if isinstance(kind, TurnStarted) else ""
        joined = kind.user_message_id if isinstance(kind, TurnSteered) else joined
        if joined in unit.alternatives and joined not in seen:
            changes = (one.message for one in commit.changes if isinstance(one, PutMessage))
            yield from (NewEvent(MessageReplaced(one), new.turn_id) for one in changes if one.message_id == joined)


def _is_same_path(unit: Unit, kind: ConversationChanged) -> bool:
    selected = kind.change is ConversationChange.ALTERNATIVE_SELECTED
    return selected and unit.rewound is not None and not unit.rewound.messages


def _numbered(unit: Unit, kind: DurableKind, sequence: int) -> DurableKind:
    """Returns what happened with the numbers that are only known here."""
    match kind:
        case TurnStarted(turn):
            return TurnStarted(msgspec.structs.replace(turn, start_sequence=sequence))
        case TurnEnded(turn):
            start = unit.turn_starts.get(turn.turn_id, 0)
            return TurnEnded(msgspec.structs.replace(turn, start_sequence=start, end_sequence=sequence))
        case SessionUpdated(view):
            return SessionUpdated(_as_stored(unit, view))
        case QueueChanged(known):
            return queue_changed(unit, known)
        case _:
            return kind


def _placed(unit: Unit, kind: DurableKind) -> DurableKind:
    """Returns what happened with the message before the one that it carries, or the last one that it keeps."""
    if isinstance(kind, ConversationChanged) and unit.rewound is not None:
        kept, reread = unit.rewound.kept_through_message_id, kind.reread or unit.rewound.joined > 0
        return msgspec.structs.replace(kind, kept_through_message_id=kept, reread=reread)
    if not isinstance(kind, MessageAdded | MessageFinished | MessageReplaced):
        return kind
    before_it = unit.previous.get(kind.message.message_id, kind.message.previous_message_id)
    count, index = unit.alternatives.get(kind.message.message_id, (0, 0))
    message = msgspec.structs.replace(
        kind.message, previous_message_id=before_it, alternative_count=count, alternative_index=index
    )
    if isinstance(kind, MessageAdded):
        return MessageAdded(message, unit.titles.get(message.message_id, ""))
    return type(kind)(message)


def _as_stored(unit: Unit, view: SessionView) -> SessionView:
    """Returns a view of the session with what messages may have changed since it was read: mark and first words."""
    archived_at = moment(unit.archived_at_us) if unit.archived_at_us else None
    session = begun(msgspec.structs.replace(view.session, archived_at=archived_at), unit.first_words)
    return msgspec.structs.replace(view, session=session)


def last_position(db: sqlite3.Connection) -> int:
    """Returns the newest position that the log has ever given.

    Events may be gone from its end while older ones are kept for a turn.
    """
    (position,) = db.execute(
        "SELECT max(coalesce((SELECT max(position) FROM events), 0), pruned_through, newest_dropped) FROM log_state"
    ).fetchone()
    return int(position)
