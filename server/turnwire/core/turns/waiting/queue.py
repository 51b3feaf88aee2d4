"""The queue of one session: its waiting messages, next first."""

import asyncio
from collections.abc import Iterator

from turnwire.core.turns.waiting.places import Place
from turnwire.core.work import Work
from turnwire.domain.conversation.events import QueueChanged
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry
from turnwire.domain.errors import MessageNotWaiting
from turnwire.ports.commit import NewEvent, OrderQueue


class SessionQueue:
    """The places of waiting messages in order, those included whose message is on its way to the store.

    Used on the event loop only. Commits have the order of the changes here, so the stored queue has the same order.
    `changing` is held from finding a message here until its change is stored or has failed. A turn begins only outside
    of it, so that it has the message as it is stored.
    """

    def __init__(self) -> None:
        """Begins empty."""
        self._places: list[Place] = []
        self.changing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def find(self, message_id: str) -> Place:
        """Returns the place of a stored message. Raises MessageNotWaiting."""
        for place in self._places:
            if place.message.message_id == message_id and place.is_stored:
                return place
        raise MessageNotWaiting(f"message {message_id!r} does not wait", message_id)

    def append(self, place: Place) -> None:
        """Adds a place at the end."""
        self._places.append(place)

    def add(self, place: Place) -> int:
        """Adds a place where its policy puts it, and returns its position, from 1.

        One that interrupts is answered next, before all that came earlier. One that steers comes before those that only
        wait: it is next when the turn ends first.
        """
        match place.turn.busy_policy:
            case BusyPolicy.INTERRUPT:
                at = 0
            case BusyPolicy.STEER:
                aimed = [at for at, other in enumerate(self._places) if other.turn.aimed_at_turn_id]
                at = aimed[-1] + 1 if aimed else 0
            case _:
                at = len(self._places)
        self._places.insert(at, place)
        return at + 1

    def joining(self, turn_id: str) -> list[Place]:
        """Returns the stored messages that are to join a turn, in order."""
        return [
            place
            for place in self._places
            if (place.turn.busy_policy, place.turn.aimed_at_turn_id) == (BusyPolicy.STEER, turn_id) and place.is_stored
        ]

    def move(self, place: Place, before: Place | None) -> Place | None:
        """Moves a place before another one, or to the end for None. Returns what `remove` does."""
        former = self.remove(place)
        self._places.insert(len(self._places) if before is None else self._places.index(before), place)
        return former

    def remove(self, place: Place) -> Place | None:
        """Removes a place, and returns the one before it, for `put_back`. Does nothing when it does not wait."""
        if place not in self._places:
            return None
        at = self._places.index(place)
        del self._places[at]
        return self._places[at - 1] if at else None

    def put_back(self, place: Place, former: Place | None) -> None:
        """Puts a place back behind the one that was before it; of several, begin with the last that was removed."""
        self.remove(place)
        self._places.insert(self._places.index(former) + 1 if former in self._places else 0, place)

    @property
    def first(self) -> Place | None:
        """The place that is next; None when nothing waits."""
        return self._places[0] if self._places else None

    def take_all(self) -> list[Place]:
        """Removes all places, and returns them."""
        taken, self._places = self._places, []
        return taken

    def shown(self) -> tuple[QueueEntry, ...]:
        """Returns the stored messages that wait. One that is on its way may fail, and its event tells it if not."""
        return tuple(place.entry for place in self._places if place.is_stored)

    def changed(self) -> Work:
        """Returns the work that tells the queue; the store reads it when the work is stored."""
        return Work((), (NewEvent(QueueChanged(tuple(place.entry for place in self._places))),))

    def ordered(self) -> Work:
        """Returns the work that stores the order as it is now."""
        return Work((OrderQueue(tuple(place.message.message_id for place in self._places)),))
