"""What was told of each durable event, by whoever watched: no replay and no restart may tell another one."""

from collections import Counter

from opencode.event.session_event_pb2 import SessionEvent
from tests.support.oracles.event_facts import facts
from tests.support.oracles.fold import ContractBroken


class Facts:
    """All durable events that any reader was told."""

    def __init__(self) -> None:
        """Begins with none."""
        self._told: dict[tuple[str, int], bytes] = {}
        self._ends: dict[tuple[str, str], int] = {}
        self.kinds: Counter[str] = Counter()
        """How many events of each kind there were."""

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

    def forget_after(self, heads: dict[str, int]) -> None:
        """Forgets what came after these sequences: the database is another one. Sessions without one are forgotten."""
        self._told = {place: told for place, told in self._told.items() if place[1] <= heads.get(place[0], 0)}
        self._ends = {turn: at for turn, at in self._ends.items() if at <= heads.get(turn[0], 0)}

    def forget_session(self, session_id: str) -> None:
        """Forgets a session."""
        self.forget_after({name: 1 << 62 for name, _ in self._told if name != session_id})
