"""Every durable event as each watcher received it: no replay and no restart may send a different one."""

from collections import Counter
from typing import NamedTuple

from opencode.event.session_event_pb2 import SessionEvent
from tests.support.oracles.event_facts import facts
from tests.support.oracles.fold import ContractBroken


class Told(NamedTuple):
    """The received events at one moment."""

    events: dict[tuple[str, int], bytes]
    """Session and sequence -> the event."""
    ends: dict[tuple[str, str], int]
    """Session and turn -> the sequence of its end."""


class Facts:
    """All durable events that any reader was told."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], bytes] = {}
        self._ends: dict[tuple[str, str], int] = {}
        self.kinds: Counter[str] = Counter()
        """Number of events of each kind."""

    def note(self, session_id: str, event: SessionEvent) -> None:
        """Notes an event.

        Raises:
            ContractBroken: another one was told under its sequence, or its turn has an end already.
        """
        if not event.sequence:
            return
        place, told = (session_id, event.sequence), facts(event)
        before = self._told.setdefault(place, told)
        if before is told:
            self.kinds[event.WhichOneof("kind") or ""] += 1
        elif before != told:
            raise ContractBroken(
                f"event {event.sequence} of {session_id} is another one now: {event}, and was {before!r}"
            )
        if event.HasField("turn_ended"):
            turn = (session_id, event.turn_id)
            if self._ends.setdefault(turn, event.sequence) != event.sequence:
                raise ContractBroken(f"turn {event.turn_id} has ends at {self._ends[turn]} and {event.sequence}")

    def told(self) -> Told:
        """Returns what was told so far."""
        return Told(dict(self._told), dict(self._ends))

    def go_back(self, told: Told) -> None:
        """Knows only what was told when a backup was made: the server has that database again."""
        self._told, self._ends = dict(told.events), dict(told.ends)
