"""Gives ids, times and digests names that are the same each time a recording is made."""

import re
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

_ID = re.compile(r"\b([a-z]{2,5})_[0-9a-f]{32}\b")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")

START_SECONDS = 1_767_225_600
"""2026-01-01, midnight in UTC."""

_SECONDS = {"create_time": 0, "start_time": 1, "end_time": 2, "update_time": 3, "archive_time": 4, "expire_time": 600}
_MILLISECONDS = {"created_at": 0, "started_at": 1000, "finished_at": 2000, "created": 0, "updated": 3000}


class Names:
    """Renames in the order in which things are first seen."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def text(self, words: str) -> str:
        """Returns a text with the new names of the ids, digests and addresses in it."""
        words = _ID.sub(lambda found: self._name(found[0], found[1]), words)
        words = _DIGEST.sub(lambda found: self._name(found[0], "digest"), words)
        return _ADDRESS.sub("127.0.0.1:1", words)

    def rename(self, message: Message) -> None:
        """Renames everything in a message, and sets its times by the names of their fields."""
        for field, value in message.ListFields():
            if _is_map(field):
                for key in list(value):
                    if isinstance(value[key], str):
                        value[key] = self.text(value[key])
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                for one in value if field.is_repeated else [value]:
                    self._rename_inner(field.name, one)
            elif field.type == FieldDescriptor.TYPE_STRING and field.is_repeated:
                value[:] = [self.text(one) for one in value]
            elif field.type == FieldDescriptor.TYPE_STRING:
                setattr(message, field.name, self.text(value))
            elif field.name in _MILLISECONDS:
                setattr(message, field.name, START_SECONDS * 1000 + _MILLISECONDS[field.name])

    def _rename_inner(self, name: str, value: Any) -> None:
        if isinstance(value, Timestamp):
            value.Clear()
            value.seconds = START_SECONDS + _SECONDS.get(name, 0)
        elif name == "delay":  # of a retry: drawn by chance
            value.Clear()
            value.seconds = 1
        else:
            self.rename(value)

    def _name(self, old: str, prefix: str) -> str:
        if old not in self._known:
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            self._known[old] = f"{prefix}_{self._counts[prefix]}"
        return self._known[old]


def _is_map(field: FieldDescriptor) -> bool:
    inner = field.message_type
    return inner is not None and inner.GetOptions().map_entry
