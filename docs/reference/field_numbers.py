"""The messages of the contract, and the field numbers that are kept for planned fields."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor

_ROOT = Path(__file__).parents[2]
_EVENT = "opencode.event.SessionEvent"
_FIRST_PASSING_NUMBER = 32
"""In `SessionEvent`: the first kinds that are not durable; free numbers are before and behind them."""

_INTRODUCTION = """\
# Field numbers

`make generate` writes this page from the contract. A new field takes the number behind the greatest that its message
has or had (`reserved`); in messages of the fixed contract it is at least 16. A new durable kind of event takes
{lasting} (to {last}) and becomes a member of `EventKind` with its number; a kind that is not durable takes {passing}.
These numbers are kept for planned fields:

| message | kept |
|---|---|
"""

PLANNED = {
    "opencode.event.SessionEvent": {
        28: "message_redacted",
        29: "actor",
    },
    "opencode.event.WatchEventsRequest": {8: "heartbeat_interval", 9: "session_ids"},
    "opencode.file.DownloadFileRequest": {3: "offset", 4: "size"},
    "opencode.message.SendMessageRequest": {25: "labels"},
    "opencode.message.TextContent": {2: "citations"},
    "opencode.server.GetServerInfoResponse": {9: "regions"},
    "opencode.session.ListSessionsRequest": {23: "filter"},
    "opencode.tool.ToolDefinition": {4: "title", 5: "output_schema_json", 6: "read_only", 7: "destructive"},
    "opencode.turn.GenerationOptions": {11: "seed", 12: "service_tier"},
    "opencode.turn.Turn": {19: "sent_context"},
}
"""Full name of a message -> the numbers that are kept for planned fields, with what they are for."""


def field_numbers() -> str:
    """Returns the page."""
    [event] = [message for message in messages() if message.full_name == _EVENT]
    taken = [*_taken(event), *PLANNED[_EVENT]]
    introduction = _INTRODUCTION.format(
        lasting=max(number for number in taken if number < _FIRST_PASSING_NUMBER) + 1,
        last=_FIRST_PASSING_NUMBER - 1,
        passing=max(taken) + 1,
    )
    kept = {
        name: ", ".join(f"{number} {field}" for number, field in fields.items()) for name, fields in PLANNED.items()
    }
    return introduction + "".join(f"| `{name}` | {fields} |\n" for name, fields in kept.items())


def fixed_messages() -> frozenset[str]:
    """Returns the full names of the messages of the fixed contract."""
    image = (_ROOT / "tests/contract/fixed_contract.binpb").read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(image).file
    return frozenset(f"{file.package}.{message.name}" for file in files for message in file.message_type)


def modules() -> Iterator[object]:
    """Returns the generated module of each file of the contract."""
    for path in sorted((_ROOT / "proto/opencode").rglob("*.proto")):
        name = path.relative_to(_ROOT / "proto").with_suffix("").as_posix().replace("/", ".")
        yield importlib.import_module(f"{name}_pb2")


def messages() -> Iterator[Descriptor]:
    """Returns every message of the contract, file by file in the order of their declaration."""
    for module in modules():
        yield from module.DESCRIPTOR.message_types_by_name.values()  # type: ignore[attr-defined]


def _taken(message: Descriptor) -> list[int]:
    """Returns the numbers that are or were a field's."""
    proto = descriptor_pb2.DescriptorProto()
    message.CopyToProto(proto)
    return [field.number for field in proto.field] + [
        number for gap in proto.reserved_range for number in range(gap.start, gap.end)
    ]
