"""A unit of work before it is committed: changes to store and events to tell, which add up."""

from msgspec import Struct

from turnwire.ports.commit import Change, NewEvent


class Work(Struct, frozen=True):
    """What to store and what to tell, in order."""

    changes: tuple[Change, ...] = ()
    events: tuple[NewEvent, ...] = ()

    def __add__(self, other: "Work") -> "Work":
        return Work(self.changes + other.changes, self.events + other.events)
