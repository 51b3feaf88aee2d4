"""A unit of work before it is committed: changes and events. Units can be added."""

from msgspec import Struct

from turnwire.ports.commit import Change, NewEvent


class Work(Struct, frozen=True):
    """Changes to store and events to publish, each in order."""

    changes: tuple[Change, ...] = ()
    events: tuple[NewEvent, ...] = ()

    def __add__(self, other: "Work") -> "Work":
        return Work(self.changes + other.changes, self.events + other.events)
