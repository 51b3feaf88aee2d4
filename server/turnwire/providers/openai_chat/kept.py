"""What a Chat Completions stream brings in fragments for its provider alone: passed on when the answer ends.

Values are kept as JSON text, which takes as much memory as it had on the wire.
"""

from typing import Any

import msgspec

from turnwire.providers.answer import json_text

_GROWING = ("text", "summary", "data")

_ENTRY_BYTES = 512
"""About what an entry takes in memory beside its values."""

_PIECE_BYTES = 64
"""About what a piece of a growing text, or a member, takes in memory beside its characters."""


class ReasoningDetails:
    """The `reasoning_details` of one answer.

    OpenRouter requires them back unchanged, with their fragments joined:
    https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks
    """

    def __init__(self) -> None:
        """Has none."""
        self.kept_bytes = 0
        self._known: dict[tuple[str, str], dict[str, Any]] = {}

    def __bool__(self) -> bool:
        """True when there are any."""
        return bool(self._known)

    def add(self, details: list[dict[str, Any]]) -> None:
        """Takes the fragments of one event."""
        for detail in details:
            place = (_name_of(detail.get("index")), _name_of(detail.get("type")))
            known = self._known.get(place)
            if known is None:
                known = self._known[place] = {}
                self.kept_bytes += _ENTRY_BYTES
            for name, value in detail.items():
                if name in _GROWING and isinstance(value, str):
                    self._grow(known, name, value)
                elif value or name not in known:
                    self._replace(known, name, value)

    def whole(self) -> list[dict[str, Any]]:
        """Returns the details in the order in which they began."""
        return [
            {name: "".join(value) if isinstance(value, list) else value for name, value in known.items()}
            for known in self._known.values()
        ]

    def _grow(self, known: dict[str, Any], name: str, value: str) -> None:
        pieces = known.get(name)
        if not isinstance(pieces, list):
            pieces = known[name] = [pieces] if isinstance(pieces, str) else []
        pieces.append(value)
        self.kept_bytes += _PIECE_BYTES + len(value)

    def _replace(self, known: dict[str, Any], name: str, value: object) -> None:
        before = _size(known[name]) if name in known else -_PIECE_BYTES - len(name)
        known[name] = value = json_text.packed(value)
        self.kept_bytes += _size(value) - before


class KeptEntries:
    """A list that comes in several events."""

    def __init__(self) -> None:
        """Has none."""
        self.kept_bytes = 0
        self._entries: dict[object, object] = {}

    def add(self, entries: object) -> None:
        """Takes one entry, or a list of them; one with the index of an earlier one takes its place, at the end.

        Groq repeats an entry with its output; the later one is whole.
        """
        for entry in entries if isinstance(entries, list) else [entries]:
            index = entry.get("index") if isinstance(entry, dict) else None
            place: object = (len(self._entries),) if index is None else _name_of(index)
            self._drop(place)
            self._entries[place] = value = json_text.packed(entry)
            self.kept_bytes += _ENTRY_BYTES + _size(value)

    def whole(self) -> list[object]:
        """Returns the entries."""
        return list(self._entries.values())

    def _drop(self, place: object) -> None:
        if place in self._entries:
            self.kept_bytes -= _ENTRY_BYTES + _size(self._entries.pop(place))


def _name_of(value: object) -> str:
    """Returns what tells two indexes apart: a foreign value of any form."""
    return value if isinstance(value, str) else json_text.encode(value)


def _size(value: object) -> int:
    """Returns about how many bytes a value takes: those of texts and of packed values."""
    if isinstance(value, list):
        return sum(map(len, value))
    return len(value) if isinstance(value, str | msgspec.Raw) else 32
