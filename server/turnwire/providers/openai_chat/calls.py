"""Assigns the fragments of a Chat Completions stream to tool calls.

OpenAI numbers the calls by `index` and gives the id once. Some compatible servers repeat the id, some omit the index or
the id, some number from 1, and some give every call the index 0. So the id decides, then the index, then the position.
"""

from collections.abc import Callable, Mapping
from typing import Any

from turnwire.ports.provider import StreamItem, ToolCallDelta
from turnwire.providers.answer import json_text
from turnwire.providers.answer.json_end import JsonEnd


class _Call:
    __slots__ = ("arguments", "call_id", "key", "name")

    def __init__(self, key: int) -> None:
        self.key = key
        self.name = ""
        self.call_id = ""
        self.arguments = JsonEnd()


class ToolCallFragments:
    """The tool calls of one answer."""

    def __init__(self, new_key: Callable[[], int], original_names: Mapping[str, str]) -> None:
        """Args:
        new_key: Returns the part key for a new call.
        original_names: The server's tool names by their wire names.
        """
        self._new_key = new_key
        self._original_names = original_names
        self._by_id: dict[str, _Call] = {}
        self._by_slot: dict[object, _Call] = {}
        self._last: _Call | None = None

    @property
    def any(self) -> bool:
        """Whether a call was read."""
        return self._last is not None

    def read(self, fragments: list[Any], items: list[StreamItem]) -> None:
        """Appends a `ToolCallDelta` for each fragment; other values are skipped."""
        for position, fragment in enumerate(fragments):
            if not isinstance(fragment, dict):
                continue
            body = fragment.get("function") or fragment.get("custom") or {}
            name = body.get("name") or ""
            arguments = body.get("arguments") or body.get("input") or ""
            if not isinstance(arguments, str):
                # Ollama's own form: an object instead of JSON text.
                arguments = json_text.encode(arguments)
            call_id = fragment.get("id") or ""
            index = fragment.get("index")
            call = self._find(str(call_id), ("position", position) if index is None else index, str(name))
            if name and not call.name:
                call.name = self._original_names.get(name, name)
            if call_id and not call.call_id:
                call.call_id = str(call_id)
            call.arguments.read(arguments)
            items.append(ToolCallDelta(call.key, call.name, call.call_id, arguments))

    def _find(self, call_id: str, slot: object, name: str) -> _Call:
        call = self._by_id.get(call_id) if call_id else None
        if call is None:
            call = self._by_slot.get(slot)
            if call is None and not name and not call_id:
                call = self._last
            if call is None or self._begins_another(call, call_id, name):
                call = _Call(self._new_key())
        if call_id and call_id not in self._by_id:
            self._by_id[call_id] = call
        self._by_slot[slot] = call
        self._last = call
        return call

    def _begins_another(self, call: _Call, call_id: str, name: str) -> bool:
        if not name:
            # Without a name it continues the call, even with a new id: a call always begins with its name.
            return False
        if not call.name:
            return False
        if call_id and call.call_id:
            return True
        # There are no two ids to compare: a repeated name is either a repetition or the next call of the same index.
        return self._original_names.get(name, name) != call.name or call.arguments.is_whole
