"""A unit of work before it is committed: changes and events. Units can be added."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from turnwire.ports.commit import Change, NewEvent, PutMessage, RemoveMessage


class Work(Struct, frozen=True):
    """Changes to store and events to publish, each in order."""

    changes: tuple[Change, ...] = ()
    events: tuple[NewEvent, ...] = ()

    def __add__(self, other: "Work") -> "Work":
        return Work(self.changes + other.changes, self.events + other.events)


def joined(units: Iterable[Work]) -> Work:
    """Returns units as one. A message that several of them change is written once, as the last one has it.

    The units follow each other: what a later one writes of a message contains what the earlier ones wrote.
    """
    changes: list[Change] = []
    events: list[NewEvent] = []
    written: dict[str, int] = {}
    for unit in units:
        events += unit.events
        for change in unit.changes:
            if not isinstance(change, PutMessage):
                if isinstance(change, RemoveMessage):
                    written.pop(change.message_id, None)
                changes.append(change)
                continue
            message_id = change.message.message_id
            at = written.setdefault(message_id, len(changes))
            if at == len(changes):
                changes.append(change)
                continue
            before = changes[at]
            if not isinstance(before, PutMessage):
                raise TypeError(f"{before!r} writes no message")
            changes[at] = msgspec.structs.replace(change, at_end=before.at_end or change.at_end)
    return Work(tuple(changes), tuple(events))
