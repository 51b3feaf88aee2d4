"""A unit of work before it is committed: changes and events. Units can be added."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from turnwire.ports.commit import Change, NewEvent, PutMessage, RecordRequest, RemoveMessage


class Work(Struct, frozen=True):
    """Changes to store and events to publish, each in order."""

    changes: tuple[Change, ...] = ()
    events: tuple[NewEvent, ...] = ()

    def __add__(self, other: "Work") -> "Work":
        return Work(self.changes + other.changes, self.events + other.events)


def joined(units: Iterable[Work]) -> Work:
    """Returns units as one. A message that several of them change is written once, as the last one has it.

    The units follow each other: what a later one writes of a message contains what the earlier ones wrote. What is
    remembered of a request knows how many events come before its unit.
    """
    changes: list[Change] = []
    events: list[NewEvent] = []
    written: dict[str, int] = {}
    for unit in units:
        before = len(events)
        events += unit.events
        for change in unit.changes:
            if isinstance(change, RecordRequest):
                changes.append(msgspec.structs.replace(change, events_before=before))
                continue
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
            earlier = changes[at]
            if not isinstance(earlier, PutMessage):
                raise TypeError(f"{earlier!r} writes no message")
            changes[at] = msgspec.structs.replace(change, at_end=earlier.at_end or change.at_end)
    return Work(tuple(changes), tuple(events))
