"""A client's state of one session, at one place."""

import copy

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import ListMessagesResponse
from tests.support.delivery.comparing import difference, settled
from tests.support.oracles.fold import SessionFold


class Held:
    """State of a reader at one place."""

    def __init__(self, session_id: str, start: ListMessagesResponse | None = None) -> None:
        """Begins at the first event of the session, or with a list."""
        listed = start or ListMessagesResponse()
        self.fold = SessionFold(session_id, listed.sequence, listed.messages)
        self.token = listed.resume_token
        self.is_ahead = False
        """Whether the queue of now was told, and events from before it may follow: so until the marker.

        A message that was just leaving the queue then is told by the event after it.
        """
        self._is_caught_up = True

    @property
    def head(self) -> int:
        """The sequence that is held."""
        return self.fold.head or 0

    def apply(self, event: SessionEvent) -> None:
        """Takes in one event; raises ContractBroken as the fold does."""
        allow_deletion(self.fold, event)
        self.fold.apply(event)
        if event.HasField("session_snapshot"):
            self.is_ahead, self._is_caught_up = True, False
        self._is_caught_up |= event.HasField("caught_up")
        if self.is_ahead and self._is_caught_up:
            self.is_ahead = not self.fold.left_out.isdisjoint(self.fold.queue)

    def note_token(self, batch: WatchEventsResponse) -> None:
        """Keeps the place behind a batch that was taken in."""
        self.token = batch.resume_token or self.token

    def differs(self, stored: list[SessionMessage]) -> str:
        """Returns how it differs from what is stored at its sequence; "" when it does not."""
        return difference(self.fold.listed(), stored)

    def at_place(self) -> "Held":
        """Returns a copy that goes its own way."""
        made = copy.copy(self)
        made.fold = copy.deepcopy(self.fold)
        return made

    def ids(self) -> set[str]:
        """Returns the ids of all messages that are held."""
        return {message.message_id for message in settled(self.fold.listed())}


def allow_deletion(fold: SessionFold, event: SessionEvent) -> None:
    """Lets the fold take a deletion, which takes with it the events that were not told yet."""
    if event.HasField("session_deleted") and fold.head is not None:
        fold.head = max(fold.head, event.sequence - 1)
