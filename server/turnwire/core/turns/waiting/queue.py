"""The queue of one session: its waiting messages, next first."""

from collections.abc import Iterator

from turnwire.core.turns.waiting.places import Place
from turnwire.core.work import Work
from turnwire.domain.conversation.events import QueueChanged
from turnwire.domain.conversation.turns import QueueEntry
from turnwire.ports.commit import NewEvent


class SessionQueue:
    """The places of waiting messages in order, those included whose message is on its way to the store.

    Used on the event loop only. Commits have the order of the changes here, so the stored queue has the same order.
    """

    def __init__(self) -> None:
        """Begins empty."""
        self._places: list[Place] = []

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def add(self, place: Place) -> None:
        """Adds a place at the end."""
        self._places.append(place)

    def remove(self, place: Place) -> None:
        """Removes a place. Does nothing when it does not wait."""
        if place in self._places:
            self._places.remove(place)

    def take_first(self) -> Place:
        """Removes the place that is next, and returns it. Raises IndexError when nothing waits."""
        return self._places.pop(0)

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
