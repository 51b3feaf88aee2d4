"""JSON Schemas of what clients of the fixed contract read, made of the contract and its comments."""

import itertools
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from docs.reference.field_numbers import messages

_PROTO = Path(__file__).parents[2] / "proto"

SCHEMAS = {
    "schema/messageInfo.schema.json": ("opencode.event.MessageUpdated", "opencode.message.DisplayMessage"),
    "schema/messagePart.schema.json": ("opencode.event.MessagePartUpdated",),
}
"""Name in docs/ -> the messages that fit the schema: as an event of the simple stream, and as GetMessages answers."""

_REQUIRED = {
    "opencode.event.MessageUpdated": ("messageId", "role"),
    "opencode.message.DisplayMessage": ("messageId", "role"),
    "opencode.event.MessagePartUpdated": ("messageId",),
}
"""Fields that are never empty. All others are left out of JSON when they are."""

_WORDS: dict[str, list[str | None]] = {
    "opencode.event.MessageUpdated.role": ["user", "assistant", "system"],
    "opencode.message.DisplayMessage.role": ["user", "assistant", "system"],
    "opencode.event.MessageUpdated.finish": ["stop", "error", None],
}
"""Texts of the fixed contract that have these values alone."""

_NUMBER = {"anyOf": [{"type": "string", "pattern": "^-?[0-9]+$"}, {"type": "integer"}]}
"""64 bits: protobuf writes text, because other readers would round."""

_TYPES: dict[int, dict[str, Any]] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_UINT32: {"type": "integer", "minimum": 0},
    FieldDescriptor.TYPE_INT32: {"type": "integer"},
    FieldDescriptor.TYPE_UINT64: _NUMBER,
    FieldDescriptor.TYPE_INT64: _NUMBER,
    FieldDescriptor.TYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
}

_KNOWN = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?s$"},
}
"""Messages that JSON writes as text."""


def schemas() -> dict[str, str]:
    """Returns the text of each schema by its name in docs/."""
    return {name: json.dumps(_schema(roots), indent=2, ensure_ascii=False) + "\n" for name, roots in SCHEMAS.items()}


def _schema(roots: tuple[str, ...]) -> dict[str, Any]:
    found = {message.full_name: message for message in messages()}
    definitions: dict[str, Any] = {}
    waiting = [found[root] for root in roots]
    while waiting:
        message = waiting.pop(0)
        if message.name not in definitions:
            definitions[message.name] = _message(message)
            waiting += [kind for kind in map(_kind, message.fields) if kind and kind.full_name not in _KNOWN]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Written from the contract by make generate. JSON as protobuf writes it; skip unknown fields.",
        # of all: a field has one type in whichever message it is, and unknown fields are allowed
        "allOf": [{"$ref": f"#/$defs/{found[root].name}"} for root in roots],
        "$defs": dict(sorted(definitions.items())),
    }


def _kind(field: FieldDescriptor) -> Descriptor | None:
    """Returns the message that a field holds, for a map that of its values; None for other fields."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return kind.fields_by_name["value"].message_type
    return kind


def _message(message: Descriptor) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "description": comments()[message.full_name],
        "type": "object",
        "properties": {field.json_name: _field(field) for field in message.fields},
    }
    if required := _REQUIRED.get(message.full_name):
        schema["required"] = list(required)
    pairs = [
        {"required": [one.json_name, other.json_name]}
        for group in message.oneofs
        for one, other in itertools.combinations(group.fields, 2)
    ]
    if pairs:
        schema["not"] = {"anyOf": pairs}
    return schema


def _field(field: FieldDescriptor) -> dict[str, Any]:
    described = {"description": comments()[field.full_name]}
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        return {**described, "type": "object", "additionalProperties": _value(value)}
    if field.is_repeated:
        return {**described, "type": "array", "items": _value(field)}
    return {**described, **_value(field)}


def _value(field: FieldDescriptor) -> dict[str, Any]:
    if words := _WORDS.get(field.full_name):
        return {"enum": words}
    if field.enum_type is not None:
        # Values may be added, so a reader takes others; protobuf writes the number of one that it does not know.
        return {"type": ["string", "integer"], "examples": [value.name for value in field.enum_type.values]}
    if field.message_type is not None:
        return _KNOWN.get(field.message_type.full_name) or {"$ref": f"#/$defs/{field.message_type.name}"}
    return _TYPES[field.type]


@cache
def comments() -> dict[str, str]:
    """Returns the comment of each message and field by its full name, in one line."""
    found = {}
    for file in _described().file:
        for location in file.source_code_info.location:
            path = list(location.path)
            if path[:1] != [4] or len(path) not in (2, 4) or (len(path) == 4 and path[2] != 2):
                continue
            message = file.message_type[path[1]]
            name = f"{file.package}.{message.name}"
            if len(path) == 4:
                name += f".{message.field[path[3]].name}"
            found[name] = " ".join(location.leading_comments.split())
    return found


def _described() -> descriptor_pb2.FileDescriptorSet:
    names = sorted(str(path.relative_to(_PROTO)) for path in _PROTO.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as work:
        image = Path(work) / "image.binpb"
        options = [f"-I{_PROTO}", "--include_source_info", f"--descriptor_set_out={image}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *names], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes())
