"""Joins fragments of a Chat Completions stream that only its provider uses, and yields them when the answer ends."""

from typing import Any

from turnwire.providers.answer import json_text

_GROWING = ("text", "summary", "data")


class _Pieces(list[str]):
    """A text that grows, in pieces that are joined once, at the end."""


class ReasoningDetails:
    """The `reasoning_details` of one answer.

    OpenRouter requires them back unchanged, with their fragments joined:
    https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks
    """

    def __init__(self) -> None:
        """Starts empty."""
        self._known: dict[tuple[str, str], dict[str, Any]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._known)

    def add(self, details: list[dict[str, Any]]) -> None:
        """Takes the fragments of one event."""
        for detail in details:
            place = (_name_of(detail.get("index")), _name_of(detail.get("type")))
            known = self._known.get(place)
            if known is None:
                known = self._known[place] = {}
            for name, value in detail.items():
                if name in _GROWING and isinstance(value, str):
                    self._grow(known, name, value)
                elif value or name not in known:
                    known[name] = value

    def whole(self) -> list[dict[str, Any]]:
        """Returns the details in the order in which they began."""
        return [
            {name: "".join(value) if isinstance(value, _Pieces) else value for name, value in known.items()}
            for known in self._known.values()
        ]

    def _grow(self, known: dict[str, Any], name: str, value: str) -> None:
        pieces = known.get(name)
        if not isinstance(pieces, _Pieces):
            pieces = known[name] = _Pieces([pieces] if isinstance(pieces, str) else [])
        pieces.append(value)


class KeptEntries:
    """A list that comes in several events."""

    def __init__(self) -> None:
        """Starts empty."""
        self._entries: dict[object, object] = {}

    def add(self, entries: object) -> None:
        """Takes one entry, or a list of them. An entry with the index of an earlier one replaces it, and moves to the
        end.

        Groq repeats an entry with its output; the later one is complete.
        """
        for entry in entries if isinstance(entries, list) else [entries]:
            index = entry.get("index") if isinstance(entry, dict) else None
            place: object = (len(self._entries),) if index is None else _name_of(index)
            self._entries.pop(place, None)
            self._entries[place] = entry

    def whole(self) -> list[object]:
        """Returns the entries."""
        return list(self._entries.values())


def _name_of(value: object) -> str:
    """Returns a name that distinguishes indexes, which are foreign values of any form."""
    return value if isinstance(value, str) else json_text.encode(value)
