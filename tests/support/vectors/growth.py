"""Cuts text that grew into deltas anew: where the server cut it depends on the moment."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from opencode.event.session_event_pb2 import PartDelta
from tests.support.vectors.recording import Cut

MAX_PIECE = 9
"""Characters in one delta."""


@dataclass
class Growing:
    """One part while it grows."""

    message_id: str
    index: int
    text: str
    """All that is known of it."""
    told_bytes: int
    """Bytes of it that the deltas have told, or left out."""
    held_bytes: int = 0
    """Bytes of it that a client holds by them: up to the first gap."""

    def reaches(self, delta: PartDelta) -> None:
        """Takes in a real delta."""
        whole = self.text.encode()
        if delta.offset <= len(whole) < delta.end_offset:
            self.text = (whole + delta.text.encode()[len(whole) - delta.offset :]).decode()

    def deltas(self, rng: random.Random, cut: Cut) -> Iterator[PartDelta]:
        """Returns deltas that tell the rest, cut anew."""
        end = len(self.text.encode())
        text, place = self.text, len(self.text.encode()[: self.told_bytes].decode())
        while place < len(text):
            upto = min(len(text), place + rng.randint(1, MAX_PIECE))
            begin = place
            if cut is Cut.OVERLAPPING and rng.random() < 0.4:
                begin = rng.randint(max(0, place - 2 * MAX_PIECE), place)
            if cut is not Cut.WITH_GAPS or rng.random() < 0.7:
                delta = self._delta(begin, upto)
                if delta.offset <= self.held_bytes < delta.end_offset:
                    self.held_bytes = delta.end_offset
                yield delta
            if cut is Cut.OVERLAPPING and rng.random() < 0.3:
                old = rng.randint(0, upto)
                yield self._delta(old, rng.randint(old, upto))
            place = upto
        self.told_bytes = end

    def _delta(self, begin: int, end: int) -> PartDelta:
        offset = len(self.text[:begin].encode())
        piece = self.text[begin:end]
        return PartDelta(
            message_id=self.message_id,
            part_index=self.index,
            offset=offset,
            text=piece,
            end_offset=offset + len(piece.encode()),
        )
