"""Requests in JSON have objects where the contract has messages.

protobuf's reader takes a list or a text for an object without fields that it knows: what is in it would be ignored.
"""

from functools import cache
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor

from turnwire.domain.errors import InvalidRequest

_WELL_KNOWN = "google.protobuf."
"""Messages of this package have JSON of their own, such as a text for a time."""


def check_objects(kind: Any, data: bytes) -> None:
    """Checks that each message is an object or null.

    Args:
        kind: The descriptor of the message of the method.
        data: The request, of which the depth and the number of values were checked.

    Raises:
        InvalidRequest: a message is something else, or the bytes are not JSON; the error names the field.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest.of("request", f"is not JSON: {error}") from None
    _check(kind, value, "")


def _check(kind: Any, value: Any, path: str) -> None:
    if not isinstance(value, dict):
        raise InvalidRequest.of(path or "request", "must be a JSON object")
    fields = _messages(kind)
    for name, inner in value.items():
        field = fields.get(name)
        if field is None or inner is None:
            continue
        at = f"{path}.{field.name}" if path else field.name
        assert field.message_type is not None
        if not field.is_repeated:
            _check(field.message_type, inner, at)
        elif isinstance(inner, list):  # else the reader refuses it
            for index, one in enumerate(inner):
                _check(field.message_type, one, f"{at}[{index}]")


@cache
def _messages(kind: Any) -> dict[str, FieldDescriptor]:
    """Returns the fields of a message that are messages, by both names that JSON may have."""
    found = {}
    for field in kind.fields:
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or inner.full_name.startswith(_WELL_KNOWN):
            continue
        found[field.json_name] = found[field.name] = field
    return found
