"""A client's state of one session: the fold of the oracle, with the additions of clients/vectors/README.md."""

from collections.abc import Iterable

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import MESSAGE_STATUS_STREAMING, SessionMessage
from opencode.message.message_pb2 import ListMessagesResponse
from opencode.session.session_pb2 import SESSION_STATUS_UNSPECIFIED, SessionInfo
from tests.support.oracles.fold import SessionFold

_SESSIONS = ("session_created", "session_updated", "session_snapshot")
"""Kinds that give the whole session."""


class Holding:
    """Takes in batches of one session, as a client does that skips what it has."""

    def __init__(self, session_id: str, start: ListMessagesResponse | None = None) -> None:
        """Begins with nothing, or with a list."""
        listed = start or ListMessagesResponse()
        self.fold = SessionFold(session_id, listed.sequence if start else None, listed.messages, filtered=True)
        self.head = listed.sequence
        """The greatest sequence of the list and of what was taken in."""
        self.reached = self.head
        """The newest sequence of the session that the client was told."""
        self.session: SessionInfo | None = None
        self.status = SESSION_STATUS_UNSPECIFIED
        self.needs_reread = False
        self.resume_token = listed.resume_token

    def take(self, batch: WatchEventsResponse) -> None:
        """Takes in one batch."""
        for event in batch.events:
            self.apply(event)
        self.resume_token = batch.resume_token or self.resume_token

    def apply(self, event: SessionEvent) -> None:
        """Takes in one event, unless its sequence says that it was taken in before."""
        if event.sequence and event.sequence <= self.head:
            return
        self.head = max(self.head, event.sequence)
        self.reached = max(self.reached, self.head, event.caught_up.head_sequence)
        self.fold.apply(event)
        kind = event.WhichOneof("kind")
        changed = event.conversation_changed.reread
        self.needs_reread |= kind == "resync" or changed or (kind is None and event.reread_if_unknown)
        if kind in _SESSIONS:
            self.session = SessionInfo()
            self.session.CopyFrom(getattr(event, kind).session)
            self.status = self.session.status
        elif kind == "session_status_changed":
            self.status = event.session_status_changed.status
        elif kind == "message_added" and event.message_added.session_title and self.session is not None:
            self.session.title, self.session.title_from_message = event.message_added.session_title, True
        if self.session is not None:
            self.session.status = self.status

    @property
    def is_deleted(self) -> bool:
        """Whether the session is gone."""
        return self.fold.deleted

    def messages(self) -> list[SessionMessage]:
        """Returns the messages that do not wait, without what is not compared."""
        return compared(m for m in self.fold.listed() if m.message_id not in self.fold.queue)

    def waiting(self) -> list[str]:
        """Returns the ids of those that wait, next first."""
        return list(self.fold.queue)

    def waiting_messages(self) -> list[SessionMessage]:
        """Returns those of them that are held."""
        return compared(m for m in self.fold.listed() if m.message_id in self.fold.queue)


def compared(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies without what is stored without an event."""
    copies = []
    for message in messages:
        copy = SessionMessage()
        copy.CopyFrom(message)
        copy.ClearField("update_time")
        if copy.status == MESSAGE_STATUS_STREAMING:
            copy.ClearField("usage")
            copy.ClearField("model_run")
        copies.append(copy)
    return copies
